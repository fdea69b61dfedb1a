"""Search in memory: equal to a sort, ties by row, recall by what is found."""

from collections.abc import Iterator

import numpy as np
import pytest

from cog.index.records import SearchQuality
from cog.index.search.filters import PartFilter
from cog.index.search.searcher import (
    FlatSearcher,
    Neighbours,
    measure_recall,
    search_exactly,
)

NUM_ROWS, DIM = 3000, 16


def make_vectors(*, num_groups: int, noise: float) -> np.ndarray:
    generator = np.random.default_rng(0)
    centres = generator.standard_normal((num_groups, DIM))
    rows = centres[generator.integers(0, num_groups, NUM_ROWS)]
    rows = rows + noise * generator.standard_normal((NUM_ROWS, DIM))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


FLAT = SearchQuality("flat", DIM, NUM_ROWS, 0, 0, 10, 0.0)


def blocks_of(vectors: np.ndarray) -> Iterator[np.ndarray]:
    for start in range(0, len(vectors), 700):
        yield vectors[start : start + 700]


def test_exact_search_equals_a_sort() -> None:
    vectors = make_vectors(num_groups=20, noise=0.3)
    found = search_exactly(blocks_of(vectors), vectors[:5], top_k=12)
    scores = vectors[:5] @ vectors.T
    np.testing.assert_allclose(found.scores, -np.sort(-scores, axis=1)[:, :12], rtol=1e-5)
    np.testing.assert_allclose(np.take_along_axis(scores, found.rows, 1), found.scores, rtol=1e-5)


@pytest.mark.parametrize("top_k", [0, 1, 40, NUM_ROWS, NUM_ROWS + 1])
def test_flat_search_finds_the_best_of_what_is_allowed(top_k: int) -> None:
    vectors = make_vectors(num_groups=20, noise=0.3)
    vectors[[7, 1400, 2999]] = vectors[3]  # equal ones come by row
    searcher = FlatSearcher(blocks_of(vectors), FLAT.dim)
    allowed = np.random.default_rng(1).random(NUM_ROWS) < 0.7
    allowed[[3, 7, 1400]] = True, True, False
    for mask in (None, allowed, np.zeros(NUM_ROWS, dtype=bool)):
        part = None if mask is None else PartFilter(int(mask.sum()), mask.__getitem__)
        found = searcher.search(vectors[2:5], top_k=top_k, allowed=part)
        rows = np.arange(NUM_ROWS) if mask is None else np.flatnonzero(mask)
        scores = vectors[2:5] @ vectors.T
        wanted = rows[np.argsort(-scores[:, rows], axis=1, kind="stable")[:, :top_k]]
        assert found.rows.tolist() == wanted.tolist()
        assert found.scores.shape == found.rows.shape


def test_flat_search_is_exact() -> None:
    vectors = make_vectors(num_groups=20, noise=0.3)
    searcher = FlatSearcher(blocks_of(vectors), FLAT.dim)
    found = searcher.search(vectors[:9], top_k=10)
    assert measure_recall(found, search_exactly(blocks_of(vectors), vectors[:9], top_k=10)) == 1


def test_recall_counts_ties_and_misses() -> None:
    exact = Neighbours(np.array([[0, 1]]), np.array([[0.9, 0.8]], np.float32))
    tied = Neighbours(np.array([[0, 7]]), np.array([[0.9, 0.8]], np.float32))
    missed = Neighbours(np.array([[0, -1]]), np.array([[0.9, -1e30]], np.float32))
    assert measure_recall(tied, exact) == 1
    assert measure_recall(missed, exact) == 0.5
