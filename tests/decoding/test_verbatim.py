"""The limit of verbatim runs: of the text, wherever the same words stand."""

from dataclasses import replace
from typing import Any

import pytest

from cog.corpus.documents import DocumentStore
from cog.decoding.generator import CopyGenerator
from cog.decoding.request import Request
from cog.paths import ProjectPaths
from cog.records import CORPUS, Generation
from tests.decoding.settings import decoding

PREFIXES = ["The old mill", "The council of", "Bread is"]


def longest_run(generator: CopyGenerator, generation: Generation, texts: list[str]) -> int:
    """Words of the longest run, up to the end of a copy, that stands so in a document."""
    split, longest, written = generator.model.splitter.split, 0, ""
    for segment in generation.segments:
        written += segment.text
        if segment.origin != CORPUS:
            continue
        bounds = split(written).word_chars[:-1].tolist()
        held = [
            start
            for start in bounds
            if written[start] == " " and any(written[start:] in text for text in texts)
        ]
        longest = max(longest, sum(start >= min(held, default=len(written)) for start in bounds))
    return longest


@pytest.mark.parametrize("max_words", [2, 3, 7])
@pytest.mark.parametrize(
    "changes",
    [{"phrase_bias": 6.0}, {"phrase_bias": 3.0, "span_words": 16}],
    ids=["phrases", "spans"],
)
def test_no_run_is_longer_than_the_limit(
    generator: CopyGenerator, village: ProjectPaths, max_words: int, changes: dict[str, Any]
) -> None:
    store = DocumentStore(village.corpus("village").documents)
    texts = [each.text for each in store.iter_documents()]
    free = decoding(max_new_tokens=48, top_k_documents=1000, **changes)
    requests = [Request(p, replace(free, seed=seed)) for p in PREFIXES for seed in range(8)]
    limited = [
        Request(each.prefix, replace(each.decoding, max_verbatim_words=max_words))
        for each in requests
    ]
    runs = [longest_run(generator, each, texts) for each in generator.generate(limited)]
    assert 0 < max(runs) <= max_words
    freely = [longest_run(generator, each, texts) for each in generator.generate(requests)]
    assert max(freely) > max_words  # the limit has something to do
