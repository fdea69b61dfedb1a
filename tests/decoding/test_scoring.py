"""Word scores and phrase scores against the paper's materialised phrase table."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from cog.decoding import scoring
from cog.decoding.candidates import Phrases, find_phrases
from cog.decoding.scoring import (
    FloatScorer,
    IntegerScorer,
    Query,
    WordScorer,
    make_scorer,
)
from cog.index.records import GatheredChunks
from cog.index.tables.quantise import StoredVectors
from cog.model.integers import has_int8_dot_products
from cog.model.vector_code import VectorCodes, fit_code
from tests.decoding.synthetic import DIM, make_chunks

CPU = torch.device("cpu")


def restored(chunks: GatheredChunks) -> tuple[np.ndarray, np.ndarray]:
    starts = chunks.start_vectors.astype(np.float64) * chunks.start_scales[:, None]
    ends = chunks.end_vectors.astype(np.float64) * chunks.end_scales[:, None]
    return starts, ends


def scorers(chunks: GatheredChunks, phrases: Phrases | None = None) -> list[WordScorer]:
    """Scorers of all words, or of those that begin and end a phrase."""
    begins, ends = slice(None), slice(None)
    if phrases is not None:
        begins, ends = phrases.begin_words.numpy(), phrases.end_words.numpy()
    start = StoredVectors(chunks.start_vectors[begins], chunks.start_scales[begins])
    end = StoredVectors(chunks.end_vectors[ends], chunks.end_scales[ends])
    is_integer = chunks.start_vectors.dtype == np.int8
    return [
        FloatScorer(start, end, device=CPU),
        *([IntegerScorer(start, end)] if is_integer else []),
    ]


@pytest.mark.parametrize("dtype", ["int8", "float16"])
def test_banded_sum_equals_the_materialised_table(dtype: str) -> None:
    chunks, _ = make_chunks(1, lengths=(40, 25, 60), dtype=dtype)
    phrases = find_phrases(chunks, min_words=2, max_words=8)
    spans = np.array([phrases.span(i) for i in range(len(phrases))])
    starts, ends = restored(chunks)
    # (num_phrases, 2 * dim): what the paper stores, and what is never built here
    table = np.concatenate([starts[spans[:, 0]], ends[spans[:, 1]]], axis=1)
    query = torch.randn(3, 2 * DIM, generator=torch.Generator().manual_seed(0)) * 3
    expected = query.numpy().astype(np.float64) @ table.T
    words = phrases.begin_words.numpy(), phrases.end_words.numpy()
    chosen = make_scorer(chunks, device=CPU, begin_words=words[0], end_words=words[1])
    for scorer in [*scorers(chunks, phrases), chosen]:
        start, end = scorer.score_words(query[:, :DIM], query[:, DIM:])
        assert (start.shape[1], end.shape[1]) == (len(words[0]), len(words[1]))
        scores = [phrases.score(s, e).numpy() for s, e in zip(start, end, strict=True)]
        np.testing.assert_allclose(np.stack(scores), expected, atol=2e-5)


@pytest.mark.parametrize("dtype", ["int8", "float16"])
def test_without_words_all_are_scored_in_blocks_too(
    dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring, "BLOCK_VECTORS", 7)
    chunks, _ = make_chunks(5, dtype=dtype)
    query = torch.randn(2, DIM, generator=torch.Generator().manual_seed(0))
    for scorer in [*scorers(chunks), make_scorer(chunks, device=CPU)]:
        found = scorer.score_words(query, query)
        for scores, vectors in zip(found, restored(chunks), strict=True):
            np.testing.assert_allclose(scores.numpy(), query.numpy() @ vectors.T, atol=1e-5)


@pytest.mark.parametrize("dtype", ["int8", "float16"])
def test_some_words_are_scored_as_they_are_among_all(dtype: str) -> None:
    chunks, _ = make_chunks(6, dtype=dtype)
    query = torch.randn(2, DIM, generator=torch.Generator().manual_seed(0))
    chosen = torch.tensor([0, 3, 4]), torch.tensor([], dtype=torch.int64)
    for scorer in [*scorers(chunks), make_scorer(chunks, device=CPU)]:
        both = Query(scorer, query, query)
        for text, (starts, ends) in enumerate(zip(*scorer.score_words(query, query), strict=True)):
            some_starts, some_ends = both.score(text, chosen)
            torch.testing.assert_close(some_starts, starts[chosen[0]])
            assert some_ends.shape == (0,)
            torch.testing.assert_close(both.score(text)[1], ends)


def test_query_of_zeros_scores_zero() -> None:
    chunks, _ = make_chunks(2)
    for scorer in scorers(chunks):
        start, end = scorer.score_words(torch.zeros(1, DIM), torch.zeros(1, DIM))
        assert not start.any()
        assert not end.any()


def test_extreme_vectors_do_not_saturate() -> None:
    chunks, _ = make_chunks(4, lengths=(64,))
    chunks.start_vectors[:] = 127
    chunks.start_vectors[::2] = -127
    expected = restored(chunks)[0].sum(1) * 5.0
    for scorer in scorers(chunks):
        start, _ = scorer.score_words(torch.full((1, DIM), 5.0), torch.zeros(1, DIM))
        np.testing.assert_allclose(start[0].numpy(), expected, rtol=1e-6)


def test_scores_of_a_code_are_those_of_what_its_integers_stand_for() -> None:
    floats = make_chunks(6, dtype="float16")[0]
    vectors = floats.start_vectors.astype(np.float32), floats.end_vectors.astype(np.float32)
    sample = np.random.default_rng(1).normal(size=(400, DIM)).astype(np.float32)
    codes = VectorCodes(*(fit_code(each, sample, num_bytes=6) for each in vectors))
    integers = [codes.start.quantise(vectors[0]), codes.end.quantise(vectors[1])]
    chunks = replace(floats, start_vectors=integers[0], end_vectors=integers[1], codes=codes)
    query = torch.randn(2, DIM, generator=torch.Generator().manual_seed(0))
    scorer = make_scorer(chunks, device=CPU)
    scores = scorer.score_words(query, query)
    chosen = torch.tensor([2, 0]), torch.tensor([1])
    for found, some, all_of_them in zip(
        scorer.score_words(query, query, chosen), chosen, scores, strict=True
    ):
        torch.testing.assert_close(found, all_of_them[:, some])
    for found, code, each in zip(scores, (codes.start, codes.end), integers, strict=True):
        restored = each.astype(np.float32) @ code.decode + code.offset
        expected = query.numpy().astype(np.float64) @ restored.T
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-4)


def test_scorer_fits_what_is_stored() -> None:
    integers, floats = make_chunks(0)[0], make_chunks(0, dtype="float16")[0]
    assert isinstance(make_scorer(floats, device=CPU), FloatScorer)
    expected = IntegerScorer if has_int8_dot_products() else FloatScorer
    assert isinstance(make_scorer(integers, device=CPU), expected)
