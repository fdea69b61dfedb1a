"""CoG with the prompt's own phrases, against a plain loop; such copies say that they are."""

import json
from dataclasses import replace

import pytest

from cog.decoding.generator import CopyGenerator
from cog.decoding.request import Request
from cog.decoding.sources import collect_sources
from cog.evaluation.metrics.copies import PLACE, count_copies
from cog.evaluation.records import parse_generation
from cog.evaluation.segmentations import score_reference
from cog.model.phrase_encoder import PhraseEncoder
from cog.records import PROMPT, Decoding, Generation
from tests.baselines.conftest import OpenSystem
from tests.baselines.plain import GREEDY, prompt_table
from tests.choices import assert_same_choices, record_choices
from tests.decoding.plain import index_table, plain_greedy
from tests.decoding.settings import RULES

PREFIXES = (
    "The miller sold his flour to the baker, and the baker said",
    "Two herons",
    " A bridge of stone crosses the river",
    "word",
    "",
)
NUCLEUS = Decoding("nucleus", 0.95, 0, 24, 2, 2.0)


@pytest.fixture(scope="module")
def system(open_named: OpenSystem) -> CopyGenerator:
    return open_named("cog-prompt-phrases")


def write(generator: CopyGenerator, decoding: Decoding, num_seeds: int = 1) -> list[Generation]:
    return generator.generate(
        [
            Request(prefix, replace(decoding, seed=seed))
            for prefix in PREFIXES
            for seed in range(num_seeds)
        ]
    )


def test_greedy_equals_a_plain_loop(system: CopyGenerator, phrase_encoder: PhraseEncoder) -> None:
    num_own = num_whole = 0
    for prefix in PREFIXES:
        own = prompt_table(system, phrase_encoder, prefix)
        num_own += len(own)
        request = Request(prefix, replace(GREEDY, top_k_documents=1))
        wanted = plain_greedy(system, request, [*index_table(system, request), *own])
        (found,) = system.generate([request])
        assert found.text.startswith(wanted.text)
        assert found.text == wanted.text or not wanted.is_whole
        num_whole += wanted.is_whole
    assert num_own > 50
    assert num_whole >= 4


def test_copies_of_the_prompt_name_it_and_no_document(system: CopyGenerator) -> None:
    copies = []
    for generation in write(system, NUCLEUS, num_seeds=6):
        assert parse_generation(generation.to_json()) == generation
        for segment in generation.segments:
            if segment.origin != PROMPT:
                continue
            copies.append(segment)
            assert generation.prefix[segment.char_start : segment.char_end] == segment.text
            assert (segment.document_id, segment.corpus, segment.licence) == (None, None, None)
            assert segment.to_json()["from"] == "prompt"
            assert "document_id" not in segment.to_json()
        line = json.dumps(generation.to_json())
        cited = collect_sources([line], card_of=lambda _: None, where="texts")
        assert len(cited) == len({s.document_id for s in generation.segments if s.document_id})
        counted = count_copies(generation, len)
        num_copies = sum(segment.origin != "vocabulary" for segment in generation.segments)
        assert counted[PLACE["copies"]] == num_copies
    assert len(copies) > 5


def test_without_phrases_of_its_own_a_prompt_changes_nothing(
    system: CopyGenerator, cog: CopyGenerator
) -> None:
    requests = [Request(prefix, NUCLEUS) for prefix in ("word", "", "a.")]
    with record_choices() as found:
        system.generate(requests)
    with record_choices() as wanted:
        cog.generate(requests)
    assert_same_choices(found, wanted)


def test_places_that_join_the_pool_leave_the_prompt_in_it(system: CopyGenerator) -> None:
    decoding = replace(NUCLEUS, **RULES | {"phrase_bias": 4.0})
    origins = []
    for generation in write(system, decoding, num_seeds=6):  # every copy is held to its source
        assert generation.num_tokens == 24
        origins += [segment.origin for segment in generation.segments]
    assert {"corpus", "prompt", "vocabulary"} == set(origins)


def test_a_limit_of_verbatim_runs_holds_for_the_prompt(system: CopyGenerator) -> None:
    for generation in write(system, replace(NUCLEUS, max_verbatim_words=2), num_seeds=6):
        for segment in generation.segments:
            if segment.origin == PROMPT:
                assert len(segment.text.split()) <= 2


def test_a_reference_that_repeats_its_prompt_is_likelier(
    system: CopyGenerator, cog: CopyGenerator
) -> None:
    request = Request(PREFIXES[0], NUCLEUS)
    reference = " his flour to the baker, and the miller sold his flour"
    with_prompt, without = (
        score_reference(each, request, each.model.splitter.encode(reference)).log_probability
        for each in (system, cog)
    )
    assert with_prompt > without


def test_a_prompt_is_cited_in_any_company(system: CopyGenerator) -> None:
    requests = [Request(prefix, NUCLEUS) for prefix in PREFIXES]
    with record_choices() as first:
        system.generate(requests)
    with record_choices() as again:
        generations = system.generate(requests[::-1])  # each in the place of another
    assert_same_choices(again, first[::-1])
    assert any(s.origin == PROMPT for each in generations for s in each.segments)
