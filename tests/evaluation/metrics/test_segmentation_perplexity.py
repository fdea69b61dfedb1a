"""CoG's own perplexity against the enumeration of every segmentation, and as a distribution."""

import math
import re
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from cog.decoding.generator import CopyGenerator
from cog.decoding.pool import Pool
from cog.decoding.request import Request
from cog.decoding.session import open_generator
from cog.evaluation.metrics.segmentation_perplexity import (
    Arc,
    ReferenceLikelihood,
    reference_perplexity,
    score_reference,
    score_token_ids,
    sum_segmentations,
)
from cog.params import load_params
from cog.paths import ProjectPaths
from cog.records import Decoding
from tests.decoding.synthetic import plain_phrases

DECODING = Decoding("nucleus", 0.95, 0, 16, 16, 2.0)  # a bias, so that phrases weigh
REQUEST = Request("The old mill", DECODING)
REFERENCES = [
    " stands on the river beside",
    " and the baker of the village",
    " of the",
]


@pytest.fixture(scope="module")
def generator(village: ProjectPaths) -> Iterator[CopyGenerator]:
    with open_generator(
        village, load_params(village.params), corpus_id="village", device="cpu"
    ) as opened:
        yield opened


@pytest.fixture(scope="module")
def pool(generator: CopyGenerator) -> Pool:
    return generator.pools.make_pool(generator.pools.gather(REQUEST))


def choices_at(
    generator: CopyGenerator, pool: Pool, before: list[int]
) -> list[tuple[list[int], float]]:
    """Every choice after some tokens, with its probability: the definition, no cache."""
    encoder, chunks = generator.model.prefix_encoder, pool.chunks
    ids = generator.prefix_ids(REQUEST) + before
    state = encoder.append_last(encoder.new_cache(batch=1, capacity=8), [ids])
    logits = encoder.token_logits(state)[0].double()
    logits[torch.from_numpy(generator.model.splitter.special_token_ids)] = -math.inf
    start, end = (query[0].double().numpy() for query in encoder.phrase_queries(state))
    weighed = [([i], math.exp(x)) for i, x in enumerate(logits.tolist())]
    config, spell = generator.model.config, generator.model.splitter.decode
    written = REQUEST.prefix.encode() + spell(np.array(before, dtype=np.int32))
    is_open = not re.search(r"[\w.,;:!?)\]}%]$", written.decode(errors="replace"))
    for first, last in plain_phrases(
        chunks, min_words=config.min_phrase_words, max_words=config.max_phrase_words
    ):
        score = DECODING.phrase_bias
        score += float(start @ (chunks.start_vectors[first] * float(chunks.start_scales[first])))
        score += float(end @ (chunks.end_vectors[last] * float(chunks.end_scales[last])))
        span = slice(chunks.word_tokens[first, 0], chunks.word_tokens[last, 1])
        if is_open or spell(chunks.token_ids[span])[:1] == b" ":  # else words would be glued
            weighed.append((chunks.token_ids[span].tolist(), math.exp(score)))
    total = sum(weight for _, weight in weighed)
    return [(spelled, weight / total) for spelled, weight in weighed]


def enumerate_segmentations(
    generator: CopyGenerator, pool: Pool, ids: list[int]
) -> tuple[float, int]:
    """Sum of the probabilities of all segmentations, by recursion, and how many there are."""
    tables = [choices_at(generator, pool, ids[:k]) for k in range(len(ids))]

    def walk(position: int) -> tuple[float, int]:
        if position >= len(ids):
            return 1.0, 1
        total, count = 0.0, 0
        for spelled, probability in tables[position]:
            rest = ids[position:]
            if spelled[: len(rest)] == rest[: len(spelled)]:
                below, num_below = walk(position + len(spelled))
                total += probability * below
                count += num_below
        return total, count

    return walk(0)


@pytest.mark.parametrize("chunk", [0, 1, 2, 3])
def test_equals_brute_force_enumeration(generator: CopyGenerator, pool: Pool, chunk: int) -> None:
    # tokens of a chunk that may be copied, so that many phrases fit
    words = pool.chunks.word_tokens[pool.chunks.word_offsets[chunk] + 2 :]
    ids = pool.chunks.token_ids[words[0, 0] :][:14].tolist()
    wanted, num_segmentations = enumerate_segmentations(generator, pool, ids)
    found = score_token_ids(generator, REQUEST, np.array(ids, dtype=np.int32), pool=pool)
    assert num_segmentations > 8
    assert found.log_probability == pytest.approx(math.log(wanted), abs=1e-4)
    assert found.num_tokens == len(ids)


def test_probabilities_of_all_continuations_of_a_length_add_up(
    generator: CopyGenerator, pool: Pool
) -> None:
    vocab_size = generator.model.prefix_encoder.vocab_size

    def log_probability(*ids: int) -> float:
        array = np.array(ids, dtype=np.int32)
        return score_token_ids(generator, REQUEST, array, pool=pool).log_probability

    singles = np.array([log_probability(i) for i in range(vocab_size)])
    assert np.exp(singles).sum() == pytest.approx(1.0, abs=1e-5)
    first = int(generator.model.splitter.encode(REFERENCES[1])[0])
    pairs = np.array([log_probability(first, i) for i in range(vocab_size)])
    assert np.exp(pairs).sum() == pytest.approx(math.exp(singles[first]), rel=1e-4)


def test_phrases_of_the_corpus_make_its_text_likelier(generator: CopyGenerator) -> None:
    found = score_reference(generator, REQUEST, REFERENCES[0])
    without = score_reference(
        generator,
        Request(REQUEST.prefix, Decoding("greedy", 1.0, 0, 16, 0, 0.0)),
        REFERENCES[0],
    )
    assert without.log_probability == pytest.approx(without.token_log_probability, abs=1e-6)
    assert found.token_log_probability == pytest.approx(without.token_log_probability, abs=1e-4)
    assert found.log_probability > without.log_probability


def test_forward_pass_over_hand_made_arcs() -> None:
    # three tokens of 1/2, 1/4, 1/8; one phrase over the first two of 1/16, one over all of 1/32
    nothing = Arc(np.zeros(0, dtype=np.int64), np.zeros(0))
    both = Arc(np.array([2, 3]), np.log([1 / 16, 1 / 32]))
    found = sum_segmentations(np.log([1 / 2, 1 / 4, 1 / 8]).tolist(), [both, nothing, nothing])
    assert math.exp(found) == pytest.approx(1 / 64 + 1 / 128 + 1 / 32)


def test_perplexity_weighs_by_tokens() -> None:
    likelihoods = [
        ReferenceLikelihood(-3 * math.log(2), -6 * math.log(2), 3),
        ReferenceLikelihood(-5 * math.log(2), -6 * math.log(2), 1),
    ]
    assert reference_perplexity(likelihoods) == pytest.approx((4.0, 8.0))


def test_empty_reference_is_refused(generator: CopyGenerator) -> None:
    with pytest.raises(ValueError, match="at least one token"):
        score_reference(generator, REQUEST, "")
