"""CoG's own perplexity against the enumeration of every segmentation, and as a distribution."""

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from cog.decoding.choices import TextEnd, score_choices
from cog.decoding.generator import CopyGenerator
from cog.decoding.pool import Pool
from cog.decoding.request import Request
from cog.decoding.scoring import Query
from cog.decoding.session import open_generator
from cog.evaluation.segmentations import Step, score_reference, sum_segmentations
from cog.params import load_params
from cog.paths import ProjectPaths
from cog.records import Decoding
from tests.decoding.plain import fits, look
from tests.decoding.settings import RULES
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
    return generator.pools.get_pool(REQUEST)[0]


Spelled = list[tuple[list[int], float]]


def choices_at(generator: CopyGenerator, pool: Pool, before: list[int]) -> Spelled:
    """Every choice after some tokens, with its probability: the definition, no cache."""
    chunks, config = pool.chunks, generator.model.config
    state, logits = look(generator, generator.prefix_ids(REQUEST) + before)
    start, end = (
        query[0].double().numpy() for query in generator.model.prefix_encoder.phrase_queries(state)
    )
    weighed = [([i], math.exp(x)) for i, x in enumerate(logits.tolist())]
    spell = generator.model.splitter.decode
    written = REQUEST.prefix.encode() + spell(np.array(before, dtype=np.int32))
    for first, last in plain_phrases(
        chunks, min_words=config.min_phrase_words, max_words=config.max_phrase_words
    ):
        score = DECODING.phrase_bias
        score += float(start @ (chunks.start_vectors[first] * float(chunks.start_scales[first])))
        score += float(end @ (chunks.end_vectors[last] * float(chunks.end_scales[last])))
        span = slice(chunks.word_tokens[first, 0], chunks.word_tokens[last, 1])
        phrase = spell(chunks.token_ids[span]).decode(errors="replace")
        if fits(written.decode(errors="replace"), phrase):
            weighed.append((chunks.token_ids[span].tolist(), math.exp(score)))
    return share(weighed)


def scored_choices_at(
    generator: CopyGenerator, pool: Pool, before: list[int], decoding: Decoding
) -> Spelled:
    """The same as decoding scores them, with all that it adds."""
    ids = generator.prefix_ids(REQUEST) + before
    state, logits = look(generator, ids)
    query = Query(pool.scorer, *generator.model.prefix_encoder.phrase_queries(state))
    tail = (REQUEST.prefix.encode() + generator.model.splitter.decode(np.array(before, int)))[-4:]
    choices = score_choices(
        pool,
        logits.float(),
        partial(query.score, 0),
        end=TextEnd(ids, len(before), tail),
        decoding=decoding,
        batch_phrases=generator.model.config.batch_phrases,
    )
    weighed = [([i], math.exp(x)) for i, x in enumerate(choices.token_logits.tolist())]
    for phrase, score in enumerate(choices.phrase_scores.tolist()):
        words = pool.chunks.word_tokens[list(pool.phrases.span(phrase))]
        weighed.append((pool.chunks.token_ids[words[0, 0] : words[1, 1]].tolist(), math.exp(score)))
    return share(weighed)


def share(weighed: Spelled) -> Spelled:
    total = sum(weight for _, weight in weighed)
    return [(spelled, weight / total) for spelled, weight in weighed]


def enumerate_segmentations(tables: list[Spelled], ids: list[int]) -> tuple[float, int]:
    """Sum of the probabilities of all segmentations, by recursion, and how many there are."""

    def walk(position: int) -> tuple[float, int]:
        if position >= len(ids):
            return 1.0, 1
        total, count = 0.0, 0
        for spelled, probability in tables[position]:
            rest = ids[position:]
            if probability > 0.0 and spelled[: len(rest)] == rest[: len(spelled)]:
                below, num_below = walk(position + len(spelled))
                total += probability * below
                count += num_below
        return total, count

    return walk(0)


def text_of(pool: Pool, chunk: int) -> list[int]:
    """Tokens of a chunk that may be copied, so that many phrases fit."""
    words = pool.chunks.word_tokens[pool.chunks.word_offsets[chunk] + 2 :]
    ids: list[int] = pool.chunks.token_ids[words[0, 0] :][:14].tolist()
    return ids


@pytest.mark.parametrize("chunk", [0, 1, 2, 3])
def test_equals_brute_force_enumeration(generator: CopyGenerator, pool: Pool, chunk: int) -> None:
    ids = text_of(pool, chunk)
    tables = [choices_at(generator, pool, ids[:k]) for k in range(len(ids))]
    wanted, num_segmentations = enumerate_segmentations(tables, ids)
    found = score_reference(generator, REQUEST, np.array(ids, dtype=np.int32), pool=pool)
    assert num_segmentations > 8
    assert found.log_probability == pytest.approx(math.log(wanted), abs=1e-4)


def test_equals_enumeration_with_all_that_is_added(generator: CopyGenerator) -> None:
    added = {name: value for name, value in RULES.items() if name not in ("verify", "min_bits")}
    decoding = replace(DECODING, **added)
    request = replace(REQUEST, decoding=decoding)
    pool, _ = generator.pools.get_pool(request)
    for chunk in range(4):
        ids = text_of(pool, chunk)
        tables = [scored_choices_at(generator, pool, ids[:k], decoding) for k in range(len(ids))]
        wanted, num_segmentations = enumerate_segmentations(tables, ids)
        found = score_reference(generator, request, np.array(ids, dtype=np.int32), pool=pool)
        assert num_segmentations > 4
        assert found.log_probability == pytest.approx(math.log(wanted), abs=1e-3)
        plain = score_reference(generator, REQUEST, np.array(ids, dtype=np.int32), pool=pool)
        assert found.log_probability != plain.log_probability
        assert found.token_log_probability == pytest.approx(plain.token_log_probability, abs=1e-6)


def test_probabilities_of_all_continuations_of_a_length_add_up(
    generator: CopyGenerator, pool: Pool
) -> None:
    vocab_size = generator.model.prefix_encoder.vocab_size

    def log_probability(*ids: int) -> float:
        array = np.array(ids, dtype=np.int32)
        return score_reference(generator, REQUEST, array, pool=pool).log_probability

    singles = np.array([log_probability(i) for i in range(vocab_size)])
    assert np.exp(singles).sum() == pytest.approx(1.0, abs=1e-5)
    first = int(generator.model.splitter.encode(REFERENCES[1])[0])
    pairs = np.array([log_probability(first, i) for i in range(vocab_size)])
    assert np.exp(pairs).sum() == pytest.approx(math.exp(singles[first]), rel=1e-4)


def test_phrases_of_the_corpus_make_its_text_likelier(generator: CopyGenerator) -> None:
    alone = Request(REQUEST.prefix, Decoding("greedy", 1.0, 0, 16, 0, 0.0))
    ids = generator.model.splitter.encode(REFERENCES[0])
    found, without = (score_reference(generator, each, ids) for each in (REQUEST, alone))
    assert without.log_probability == pytest.approx(without.token_log_probability, abs=1e-6)
    assert found.token_log_probability == pytest.approx(without.token_log_probability, abs=1e-4)
    assert found.log_probability > without.log_probability


def test_forward_pass_over_hand_made_arcs() -> None:
    # three tokens of 1/2, 1/4, 1/8; one phrase over the first two of 1/16, one over all of 1/32
    nothing = np.zeros(0, dtype=np.int64), np.zeros(0)
    both = np.array([2, 3]), np.log([1 / 16, 1 / 32])
    tokens = np.log([1 / 2, 1 / 4, 1 / 8]).tolist()
    steps = [
        Step(token, 0.0, *each)
        for token, each in zip(tokens, [both, nothing, nothing], strict=True)
    ]
    assert math.exp(sum_segmentations(steps)) == pytest.approx(1 / 64 + 1 / 128 + 1 / 32)


def test_empty_reference_is_refused(generator: CopyGenerator) -> None:
    with pytest.raises(ValueError, match="at least one token"):
        score_reference(generator, REQUEST, np.zeros(0, dtype=np.int32))


def test_a_reference_longer_than_what_is_written_leaves_less_of_a_prefix(
    generator: CopyGenerator,
) -> None:
    request = Request("The old mill stands. " * 90, replace(DECODING, max_new_tokens=4))
    ids = generator.model.splitter.encode("On market days bread is sold by the river. " * 3)
    assert (
        len(generator.prefix_ids(request)) + len(ids) > generator.model.prefix_encoder.max_positions
    )
    found = score_reference(generator, request, ids)
    assert math.isfinite(found.log_probability)
