from dataclasses import replace

import pytest

from cog.corpus.documents import load_prompts
from cog.errors import EvaluationError
from cog.evaluation.prompts import select_prompts
from cog.evaluation.protocol import Protocol
from cog.model.load import load_splitter
from cog.model.words import WordSplitter
from cog.paths import ProjectPaths
from cog.records import Prompt


@pytest.fixture
def splitter(village: ProjectPaths) -> WordSplitter:
    return load_splitter(village.root / "models" / "tiny")


@pytest.fixture
def held_out(village: ProjectPaths) -> list[Prompt]:
    return load_prompts(village.corpus("village").prompts)


def test_prompts_and_references_have_exactly_the_protocols_tokens(
    splitter: WordSplitter, held_out: list[Prompt], protocol: Protocol
) -> None:
    found = select_prompts(held_out, splitter=splitter, protocol=protocol, corpus_id="village")
    assert found.num_held_out == len(held_out)
    assert found.num_qualifying == len(held_out) >= 2
    for prompt, source in zip(found.prompts, held_out, strict=False):
        text = prompt.prefix + prompt.reference
        assert (source.prefix + source.reference).startswith(text)
        assert len(splitter.token_chars(text)) == 8 + 12
        assert sum(end <= len(prompt.prefix) for _, end in splitter.token_chars(text)) == 8


def test_fewer_prompts_are_the_first_of_more(
    splitter: WordSplitter, held_out: list[Prompt], protocol: Protocol
) -> None:
    one = select_prompts(
        held_out, splitter=splitter, protocol=replace(protocol, num_prompts=1), corpus_id="village"
    )
    many = select_prompts(held_out, splitter=splitter, protocol=protocol, corpus_id="village")
    assert one.prompts == many.prompts[:1]
    assert one.num_qualifying == many.num_qualifying


def test_full_length_references_are_all_that_was_prepared(
    splitter: WordSplitter, held_out: list[Prompt], protocol: Protocol
) -> None:
    whole = replace(protocol, reference_tokens=0)
    found = select_prompts(held_out, splitter=splitter, protocol=whole, corpus_id="village")
    for prompt, source in zip(found.prompts, held_out, strict=False):
        assert prompt.prefix + prompt.reference == source.prefix + source.reference


def test_no_prompt_long_enough_is_said(
    splitter: WordSplitter, held_out: list[Prompt], protocol: Protocol
) -> None:
    wide = replace(protocol, reference_tokens=128)
    with pytest.raises(EvaluationError, match="of 136 tokens.*held-out prompts of 24 to 24 tokens"):
        select_prompts(held_out, splitter=splitter, protocol=wide, corpus_id="village")
    with pytest.raises(EvaluationError, match="none: no text that is held out"):
        select_prompts([], splitter=splitter, protocol=protocol, corpus_id="village")


def test_prompts_are_spread_over_documents(
    splitter: WordSplitter, held_out: list[Prompt], protocol: Protocol
) -> None:
    source = held_out[0]
    windows = [
        replace(source, prompt_id=f"{document}#{number}", document_id=document)
        for document in ("long", "short", "middle")
        for number in range({"long": 3, "short": 1, "middle": 2}[document])
    ]
    rules = replace(protocol, num_prompts=5)
    found = select_prompts(windows, splitter=splitter, protocol=rules, corpus_id="village")
    ids = [prompt.prompt_id for prompt in found.prompts]
    assert ids == ["long#0", "short#0", "middle#0", "long#1", "middle#1"]
