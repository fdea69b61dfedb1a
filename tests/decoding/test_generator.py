"""The copy-generator on a built index: lengths, what is copied, and what never is."""

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from cog.baselines.token_loop import TokenLoop
from cog.decoding.generator import CopyGenerator
from cog.decoding.pool_source import ENOUGH_PLACES
from cog.decoding.request import Request
from cog.errors import GenerationError
from cog.evaluation.segmentations import score_reference
from cog.index.search.contexts import MAX_CONTEXT, find_places
from cog.model.prefix_encoder import PrefixEncoder
from cog.model.protocols import CausalNetwork
from cog.records import CORPUS, VOCABULARY, Generation
from tests.decoding.plain import fits
from tests.decoding.settings import PREFIXES, RULES, SETTINGS, ask, decoding


def copied_share(generations: Sequence[Generation]) -> float:
    """Share of characters that were copied."""
    segments = [segment for generation in generations for segment in generation.segments]
    copied = sum(len(segment.text) for segment in segments if segment.origin == CORPUS)
    return copied / sum(len(segment.text) for segment in segments)


def test_seeds_and_prefixes_change_the_text(generator: CopyGenerator) -> None:
    requests = [Request(PREFIXES[0], decoding(seed=seed)) for seed in range(4)]
    texts = [generation.text for generation in generator.generate(requests)]
    assert len(set(texts)) == 4
    assert texts == [generation.text for generation in generator.generate(requests)]


@pytest.mark.parametrize("max_new_tokens", [1, 2, 3, 7, 24, 100])
def test_exactly_as_many_tokens_as_asked(generator: CopyGenerator, max_new_tokens: int) -> None:
    for name in ("biased", "spans", "all"):
        requests = ask(2, max_new_tokens=max_new_tokens, **SETTINGS[name])
        for generation in generator.generate(requests):
            assert generation.num_tokens == max_new_tokens
            assert 1 <= generation.num_steps <= max_new_tokens


def test_phrase_bias_moves_copies(generator: CopyGenerator) -> None:
    shares = [copied_share(generator.generate(ask(phrase_bias=b))) for b in (-1e4, -2.0, 2.0, 1e4)]
    assert shares[0] == 0.0
    assert shares[1] < shares[2] < shares[3]
    assert shares[3] > 0.9  # the last tokens may have no room for a phrase


@pytest.mark.parametrize("name", ["biased", "all", "limited"])
def test_no_documents_leave_the_vocabulary(generator: CopyGenerator, name: str) -> None:
    for generation in generator.generate(ask(**SETTINGS[name] | {"top_k_documents": 0})):
        assert all(segment.origin == VOCABULARY for segment in generation.segments)
        assert generation.num_steps == len(generation.segments) == 24


@pytest.mark.parametrize("name", ["paper", "all"])
@pytest.mark.parametrize(
    "prefix", ["", "x", "   ", "🙂🙂", "שלום עולם", "a\0b", "line\n\n\tline", "word " * 20_000]
)
def test_odd_prefixes_are_answered(generator: CopyGenerator, prefix: str, name: str) -> None:
    request = Request(prefix, decoding(**SETTINGS[name]))
    (generation,) = generator.generate([request])
    assert (generation.num_tokens, generation.prefix) == (24, prefix)
    assert (generator.num_unread_tokens(request) > 0) == (len(prefix) > 1000)


@pytest.mark.parametrize(
    ("prefix", "changes", "message"),
    [
        ("a\ud800", {}, "lone surrogate"),
        ("a", {"max_new_tokens": 0}, "max_new_tokens must be a whole number from 1"),
        ("a", {"max_new_tokens": 1000}, "must be a whole number from 1 to 128"),
        ("a", {"top_p": 0.0}, "top_p"),
        ("a", {"top_p": 1.5}, "top_p"),
        ("a", {"method": "beam"}, "method must be one of greedy, nucleus"),
        ("a", {"top_k_documents": -1}, "top_k_documents must be a whole number from 0"),
        ("a", {"phrase_bias": math.nan}, "phrase_bias"),
        ("a", {"verify": "sometimes"}, "verify must be one of off, absolute, relative, entropy"),
        ("a", {"verify": "absolute", "verify_threshold": 1.5}, "verify_threshold"),
        ("a", {"verify": "relative", "verify_threshold": -0.1}, "verify_threshold"),
        ("a", {"verify": "entropy", "verify_threshold": math.inf}, "verify_threshold"),
        ("a", {"temperature": 0.0}, "temperature"),
        ("a", {"temperature": math.nan}, "temperature"),
        ("a", {"span_ratio": 2.0}, "span_ratio must be a number from 0 to 1"),
        ("a", {"span_ratio": math.nan}, "span_ratio must be a number from 0 to 1"),
        ("a", {"span_words": -1}, "span_words must be a whole number from 0"),
        ("a", {"max_verbatim_words": -1}, "max_verbatim_words must be a whole number from 0"),
        ("a", {"min_bits": -1.0}, "min_bits must be a number from 0"),
        ("a", {"min_bits": 200.0}, r"the most informative has \d+\.\d bits"),
        ("a", {"relevance_level": 1.5}, "relevance_level must be a number from -1 to 1"),
        ("a", {"relevance_weight": -1.0}, "relevance_weight must be a number from 0"),
        ("a", {"first_token_weight": math.inf}, "first_token_weight must be a number from 0"),
        ("a", {"context_weight": math.nan}, "context_weight must be a number from 0"),
        ("a", {"trust": -0.5}, "trust must be a number from 0"),
    ],
)
def test_unusable_requests_are_refused(
    generator: CopyGenerator, prefix: str, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(GenerationError, match=message) as refused:
        generator.generate([Request("The", decoding()), Request(prefix, decoding(**changes))])
    assert "\n" not in str(refused.value)


def test_the_highest_useful_information_is_told(generator: CopyGenerator) -> None:
    def refuse(min_bits: float) -> str:
        with pytest.raises(GenerationError) as refused:
            generator.generate([Request("The old mill", decoding(min_bits=min_bits))])
        return str(refused.value)

    told = re.search(r"has ([\d.]+) bits", refuse(200.0))
    assert told
    highest = float(told[1])
    assert generator.generate([Request("The old mill", decoding(min_bits=highest - 0.1))])
    assert "bits" in refuse(highest + 0.1)


def test_no_requests_give_no_texts(generator: CopyGenerator) -> None:
    assert generator.generate([]) == []


def test_forbidden_chunks_are_never_copied_from(generator: CopyGenerator) -> None:
    index = generator.index
    documents = index.chunk_documents()
    allowed = index.allow(index.count_licences(), excluded=range(1, index.num_documents, 2))
    restricted = CopyGenerator(generator.model, index, allowed_chunks=allowed)
    ids = {
        index.get_documents([ordinal])[ordinal].document_id
        for ordinal in documents[documents % 2 == 0].tolist()
    }
    for name in ("biased", "all-few"):  # places that are added to a pool are allowed ones too
        cited = {
            segment.document_id
            for generation in restricted.generate(ask(3, **SETTINGS[name]))
            for segment in generation.segments
            if segment.origin == CORPUS
        }
        assert cited
        assert cited <= ids


def test_special_tokens_are_never_written(generator: CopyGenerator) -> None:
    texts = [g.text for g in generator.generate(ask(9, top_p=1.0, top_k_documents=0))]
    assert generator.model.splitter.special_token_ids.tolist() == [0]
    assert not any("<|begin|>" in text for text in texts)


class WiderNetwork:
    """A network with rows for more tokens than its tokenizer has, the likeliest of all."""

    def __init__(self, network: CausalNetwork) -> None:
        self.network = network
        self.vocab_size = network.vocab_size + 3

    def __getattr__(self, name: str) -> object:
        return getattr(self.network, name)

    def score(self, states: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.pad(self.network.score(states), (0, 3), value=100.0)


@pytest.mark.parametrize("method", ["greedy", "nucleus"])
def test_tokens_that_only_the_network_knows_are_never_written(
    generator: CopyGenerator, method: str
) -> None:
    plain = generator.model
    encoder = PrefixEncoder(
        WiderNetwork(plain.prefix_encoder.network), query_projection=None, begin_token_id=0
    )
    model = replace(plain, prefix_encoder=encoder)
    requests = ask(**SETTINGS["all"] | {"method": method})
    for generation in CopyGenerator(model, generator.index).generate(requests):
        assert generation.num_tokens == 24
    assert len(TokenLoop(model).write(requests)) == len(requests)
    ids = plain.splitter.encode("The old mill")
    likely = score_reference(CopyGenerator(model, generator.index), requests[0], ids)
    assert likely.token_log_probability > -60.0


@pytest.mark.parametrize("method", ["greedy", "nucleus"])
@pytest.mark.parametrize("rule", ["absolute", "relative", "entropy"])
def test_threshold_of_zero_is_plain(generator: CopyGenerator, rule: str, method: str) -> None:
    plain, zero = (
        generator.generate(ask(method=method, **changes))
        for changes in ({}, {"verify": rule, "verify_threshold": 0.0})
    )
    assert [each.segments for each in plain] == [each.segments for each in zero]


def test_joins_neither_glue_words_nor_leave_gaps(generator: CopyGenerator) -> None:
    num_copies = 0
    for name in ("biased", "spans", "all"):
        for generation in generator.generate(ask(3, **SETTINGS[name])):
            before = generation.prefix
            for segment in generation.segments:
                if segment.origin == CORPUS:
                    assert fits(before, segment.text)
                    num_copies += 1
                before += segment.text
    assert num_copies > 50


def test_temperature_sharpens_draws_and_leaves_greedy(generator: CopyGenerator) -> None:
    def write(**changes: Any) -> list[str]:  # noqa: ANN401
        return [generation.text for generation in generator.generate(ask(**changes))]

    assert write(method="greedy", temperature=5.0) == write(method="greedy")
    assert write(temperature=1.0) == write()
    assert write(temperature=3.0) != write()
    (cold,) = generator.generate([Request("A", decoding(temperature=0.01, max_new_tokens=1))])
    assert math.isfinite(cold.segments[0].probability)


def test_settings_that_nothing_reaches_change_nothing(generator: CopyGenerator) -> None:
    plain = generator.generate(ask())
    for changes in ({"max_verbatim_words": 99}, {"span_ratio": 0.5}, {"trust": 1.0}):
        found = generator.generate(ask(**changes))
        assert [each.segments for each in found] == [each.segments for each in plain]


def test_places_of_the_whole_index_join_a_pool(generator: CopyGenerator) -> None:
    pools, num_grown = generator.pools, 0
    settings = decoding(**RULES | {"top_k_documents": 1})
    for ordinal in range(generator.index.num_documents):
        text = generator.index.get_documents([ordinal])[ordinal].text
        request = Request("Honey and wax. " + " ".join(text.split()[:8]), settings)
        pool, _ = pools.get_pool(request)
        ids = generator.prefix_ids(request)
        grown, num_added = pools.add_places(pool, ids, settings, num_added=0)
        assert num_added == len(grown.chunks.chunk_ids) - len(pool.chunks.chunk_ids)
        assert (np.diff(grown.chunks.chunk_ids) > 0).all()
        agreed = grown.find_agreement(ids[-MAX_CONTEXT:]).num_tokens
        found = find_places(
            generator.index.contexts, np.array(ids, np.int32), min_tokens=4, max_places=8
        )
        assert agreed.max() == found.num_tokens >= 4
        assert (agreed == agreed.max()).sum() >= min(ENOUGH_PLACES, len(found.chunk_ids))
        again, num_again = pools.add_places(grown, ids, settings, num_added=num_added)
        assert (again is grown, num_again) == (True, num_added)
        assert pools.add_places(pool, ids, settings, num_added=64) == (pool, 64)
        num_grown += grown is not pool
    assert num_grown > 4


@pytest.mark.parametrize(
    "changes",
    [
        {"phrase_bias": 1e300},
        {"phrase_bias": -1e38},
        {"context_weight": 1e38},
        {"min_bits": 1e7},
        {"max_verbatim_words": 10**30},
        {"top_k_documents": 10**12},
    ],
)
def test_settings_that_would_overflow_are_refused(
    generator: CopyGenerator, changes: dict[str, Any]
) -> None:
    with pytest.raises(GenerationError, match=f"{next(iter(changes))} must be"):
        generator.generate(ask(**changes)[:1])


def test_the_largest_settings_write_texts(generator: CopyGenerator) -> None:
    weights = ("relevance_weight", "first_token_weight", "context_weight", "trust")
    numbers = ("top_k_documents", "span_words", "no_repeat_ngram", "max_verbatim_words")
    largest = dict.fromkeys(weights, 1e6) | dict.fromkeys(numbers, 10**9)
    for bias in (-1e6, 1e6):
        requests = ask(**SETTINGS["all"] | largest | {"phrase_bias": bias})
        for generation in generator.generate(requests):
            assert generation.num_tokens == 24
            assert all(0.0 <= each.probability <= 1.0 for each in generation.segments)
