"""Verification: its rules against their definition, its limits, and what it cuts."""

import math
import re
from typing import Any

import numpy as np
import pytest
import torch

from cog.corpus.documents import DocumentStore
from cog.decoding.generator import CopyGenerator
from cog.decoding.joins import extend_tail, needs_space
from cog.decoding.plausibility import count_plausible, find_implausible
from cog.decoding.request import Request
from cog.paths import ProjectPaths
from cog.records import CORPUS, Segment
from tests.decoding.test_generator import (
    PREFIXES,
    check_citations,
    decoding,
    plain_floor,
    plain_greedy,
)

RULES = [("absolute", 0.01), ("absolute", 0.2), ("relative", 0.3), ("entropy", 0.05)]
EXTREMES = [("absolute", 1.0), ("relative", 1.0), ("entropy", 1e12)]


@pytest.mark.parametrize(("rule", "threshold"), [*RULES, *EXTREMES])
def test_rules_leave_out_what_their_definition_says(rule: str, threshold: float) -> None:
    logits = torch.randn(6, 40, generator=torch.Generator().manual_seed(3)) * 2
    settings = decoding(verify=rule, verify_threshold=threshold)
    found = find_implausible(logits, settings)
    for row, is_left_out in zip(logits.double(), found, strict=True):
        probabilities = row.softmax(0)
        floor = plain_floor(probabilities, rule, threshold) * (1 - 1e-6)
        assert is_left_out.tolist() == (probabilities < floor).tolist()
        assert not is_left_out[probabilities.argmax()]
    ids = [0, *logits[:5].argmax(1).tolist()]
    assert count_plausible(logits[:5], ids, settings) == 6
    ids[3] = int(logits[2].argmin())
    assert count_plausible(logits[:5], ids, settings) == 3


@pytest.mark.parametrize(("rule", "threshold"), RULES)
def test_verified_copies_equal_a_plain_loop(
    generator: CopyGenerator, village: ProjectPaths, rule: str, threshold: float
) -> None:
    changes: dict[str, Any] = {"verify": rule, "verify_threshold": threshold}
    settings = decoding(method="greedy", max_new_tokens=12, **changes)
    requests = [Request(prefix, settings) for prefix in PREFIXES]
    store = DocumentStore(village.corpus("village").documents)
    for request, generation in zip(requests, generator.generate(requests), strict=True):
        assert generation.text == plain_greedy(
            generator, request.prefix, num_tokens=12, rule=rule, threshold=threshold
        )
        assert generation.num_tokens == 12
        check_citations(generation, store)


@pytest.mark.parametrize("method", ["greedy", "nucleus"])
@pytest.mark.parametrize(("rule", "threshold"), EXTREMES)
def test_extreme_threshold_gives_the_prefix_encoders_own_text(
    generator: CopyGenerator, rule: str, threshold: float, method: str
) -> None:
    own = decoding(method="greedy", top_k_documents=0, max_new_tokens=40)
    changes: dict[str, Any] = {"verify": rule, "verify_threshold": threshold}
    strict = decoding(method=method, phrase_bias=2.0, max_new_tokens=40, **changes)
    texts = [
        [each.text for each in generator.generate([Request(prefix, how) for prefix in PREFIXES])]
        for how in (own, strict)
    ]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("method", ["greedy", "nucleus"])
@pytest.mark.parametrize("rule", ["absolute", "relative", "entropy"])
def test_threshold_of_zero_is_plain(generator: CopyGenerator, rule: str, method: str) -> None:
    plain, zero = (
        generator.generate([Request(p, decoding(method=method, **changes)) for p in PREFIXES])
        for changes in ({}, {"verify": rule, "verify_threshold": 0.0})
    )
    assert [each.segments for each in plain] == [each.segments for each in zero]


@pytest.mark.parametrize(("rule", "threshold"), RULES[:1] + RULES[2:])
def test_verified_texts_are_the_same_in_any_batch(
    generator: CopyGenerator, village: ProjectPaths, rule: str, threshold: float
) -> None:
    store = DocumentStore(village.corpus("village").documents)
    changes: dict[str, Any] = {"verify": rule, "verify_threshold": threshold, "phrase_bias": 3.0}
    requests = [
        Request(prefix, decoding(seed=seed, max_new_tokens=20 + 3 * seed, **changes))
        for prefix in PREFIXES
        for seed in range(2)
    ]

    def write(size: int) -> list[str]:
        texts: list[str] = []
        for begin in range(0, len(requests), size):
            batch = requests[begin : begin + size]
            heard: dict[int, list[Segment]] = {i: [] for i in range(len(batch))}
            found = generator.generate(batch, on_segment=lambda i, s, to=heard: to[i].append(s))
            assert [tuple(heard[i]) for i in heard] == [each.segments for each in found]
            for request, each in zip(batch, found, strict=True):
                assert each.num_tokens == request.decoding.max_new_tokens
                assert each.num_steps == len(each.segments)
                check_citations(each, store)
            texts += [each.text for each in found]
        return texts

    assert write(10) == write(4) == write(1)


def test_copies_end_with_a_word_of_their_source(
    generator: CopyGenerator, village: ProjectPaths
) -> None:
    store = DocumentStore(village.corpus("village").documents)
    splitter = generator.model.splitter
    changes: dict[str, Any] = {"verify": "absolute", "verify_threshold": 0.02, "phrase_bias": 5.0}
    num_short = 0
    for seed in range(2):
        requests = [Request(p, decoding(seed=seed, **changes)) for p in PREFIXES]
        for generation in generator.generate(requests):
            for segment in generation.segments[:-1]:  # the last may be cut for want of room
                if segment.origin == CORPUS:
                    text = store.get_document(str(segment.document_id)).text
                    bounds = splitter.split(text).word_chars.tolist()
                    assert {segment.char_start, segment.char_end} <= set(bounds)
                    first = bounds.index(segment.char_start)
                    num_short += bounds[first + 1] == segment.char_end
    assert num_short > 0  # phrases have two words or more, so these were cut


@pytest.mark.parametrize(
    ("written", "is_needed"),
    [
        ("", False),
        ("a ", False),
        ("a\n", False),
        ("a (", False),
        ("twenty-", False),
        ("of", True),
        ("1", True),
        ("é", True),
        ("end.", True),
        ("b)", True),
        ("🙂", False),
    ],
)
def test_space_is_needed_behind_words_and_closing_marks(written: str, is_needed: bool) -> None:
    assert needs_space(extend_tail(b"", written.encode())) == is_needed
    assert needs_space(extend_tail("🙂 word (".encode(), written.encode())) == is_needed


def test_spaceless_phrases_are_only_left_out_behind_a_word(generator: CopyGenerator) -> None:
    request = Request("The old mill", decoding())
    pool = generator.pools.make_pool(generator.pools.gather(request))
    chunks, phrases = pool.chunks, pool.phrases.phrases
    documents = generator.index.get_documents(chunks.document_ordinals.tolist())
    chunk_of = np.searchsorted(chunks.word_offsets, phrases.first, side="right") - 1
    spaceless = [
        documents[int(chunks.document_ordinals[chunk])].text[chunks.word_chars[first, 0]] != " "
        for chunk, first in zip(chunk_of, phrases.first, strict=True)
    ]
    assert 0 < sum(spaceless) < len(spaceless)
    zeros = torch.zeros(len(chunks.word_flags))
    for tail, is_barred in ((b"mill", True), (b"ill.", True), (b"", False), (b"ill ", False)):
        scores = pool.score(zeros, zeros, phrase_bias=1.0, tail=tail)
        expected = [-math.inf if is_barred and each else 1.0 for each in spaceless]
        assert scores.tolist() == expected


def test_copies_are_never_glued_to_a_word(generator: CopyGenerator) -> None:
    for seed in range(3):
        requests = [Request(p, decoding(seed=seed, phrase_bias=6.0)) for p in PREFIXES]
        for generation in generator.generate(requests):
            before = generation.prefix
            for segment in generation.segments:
                if segment.origin == CORPUS and segment.text[:1] != " ":
                    assert not re.search(r"[\w.,;:!?)\]}%]$", before)
                before += segment.text


def test_temperature_sharpens_draws_and_leaves_greedy(generator: CopyGenerator) -> None:
    def write(**changes: Any) -> list[str]:  # noqa: ANN401
        requests = [Request(prefix, decoding(**changes)) for prefix in PREFIXES]
        return [generation.text for generation in generator.generate(requests)]

    assert write(method="greedy", temperature=5.0) == write(method="greedy")
    assert write(temperature=1.0) == write()
    assert write(temperature=3.0) != write()
    cold = decoding(temperature=0.01, max_new_tokens=1, top_p=1.0)
    for prefix in PREFIXES:
        first = generator.generate([Request(prefix, decoding(method="greedy", max_new_tokens=1))])
        drawn = generator.generate([Request(prefix, cold)])
        assert math.isfinite(drawn[0].segments[0].probability)
        assert drawn[0].num_tokens == first[0].num_tokens == 1
