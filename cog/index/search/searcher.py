"""Search over chunk vectors: vectors stream in, a searcher comes out, exact or with lists.

Up to a hundred thousand chunks an exact search in memory takes milliseconds. Above, lists of rows
that lie near each other are read from disk, or an object store, as a search needs them.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cog.index.records import SearchQuality
from cog.index.search.filters import PartFilter

MAX_PROBED_SHARE = 0.25  # reading more lists than this is no faster than reading all
MAX_EXACT_ROWS = 4096  # of a filter that leaves no more, every row is looked at

# vectors, top_k, number of lists (0 for every row), condition: rows and scores of each vector
FindNearest = Callable[
    [NDArray[np.float32], int, int, str], tuple[NDArray[np.int64], NDArray[np.float32]]
]


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The best rows of a search."""

    rows: NDArray[np.int64]  # (batch, top_k) best first; -1 where there was none
    scores: NDArray[np.float32]  # (batch, top_k) inner products


class FlatSearcher:
    """Looks at every vector of blocks of *Shape:* ``(num_rows, dim)``."""

    def __init__(self, blocks: Iterable[NDArray[np.float32]], dim: int) -> None:
        self._vectors = np.concatenate([np.zeros((0, dim), np.float32), *blocks])

    def search(
        self, vectors: NDArray[np.float32], *, top_k: int, allowed: PartFilter | None = None
    ) -> Neighbours:
        """Find the rows with the largest inner products, as many as there are up to ``top_k``.

        Of equal ones the first count as better. *Shape:* ``(batch, dim)``
        """
        num_rows = len(self._vectors)
        scores = vectors @ self._vectors.T  # (batch, num_rows)
        wanted = min(top_k, num_rows)
        if allowed is not None:
            scores[:, ~allowed.admits(np.arange(num_rows))] = -np.inf
            wanted = min(top_k, allowed.num_chunks)
        found = [_find_best(row, wanted) for row in scores]
        rows = np.array(found, dtype=np.int64).reshape(len(vectors), wanted)
        return Neighbours(rows, np.take_along_axis(scores, rows, axis=1))


class ListSearcher:
    """Reads the lists of an indexed table whose centres are nearest."""

    def __init__(self, find: FindNearest, quality: SearchQuality) -> None:
        self._find = find
        self._quality = quality

    def search(
        self, vectors: NDArray[np.float32], *, top_k: int, allowed: PartFilter | None = None
    ) -> Neighbours:
        """Find the best rows, as :meth:`FlatSearcher.search`, if not always all of them."""
        num_rows = self._quality.num_rows
        num_allowed = num_rows if allowed is None else allowed.num_chunks
        condition = "" if allowed is None else allowed.condition
        wanted = min(top_k, num_allowed)
        if wanted == 0 or not len(vectors):
            shape = (len(vectors), wanted)
            return Neighbours(np.zeros(shape, np.int64), np.zeros(shape, np.float32))
        if allowed is not None and num_allowed <= MAX_EXACT_ROWS:
            return Neighbours(*self._find(vectors, wanted, 0, condition))
        # as many rows that may be found are looked at as without a filter
        num_lists, num_probes = self._quality.num_lists, self._quality.num_probes
        most = max(num_probes, int(MAX_PROBED_SHARE * num_lists))
        num_probes = min(most, -(-num_probes * num_rows // num_allowed))
        while True:
            found = Neighbours(*self._find(vectors, wanted, num_probes, condition))
            if num_probes >= num_lists or (found.rows >= 0).all():
                return found
            num_probes = min(2 * num_probes, num_lists)  # lists ran short


Searcher = FlatSearcher | ListSearcher


def search_exactly(
    blocks: Iterable[NDArray[np.float32]], vectors: NDArray[np.float32], *, top_k: int
) -> Neighbours:
    """Search ``(batch, dim)`` vectors in blocks in row order, in memory bounded by one of them."""
    shape, first = (len(vectors), 0), 0
    best = Neighbours(np.zeros(shape, np.int64), np.zeros(shape, np.float32))
    for block in blocks:
        ids = np.broadcast_to(np.arange(first, first + len(block)), (len(vectors), len(block)))
        scores = np.concatenate([best.scores, vectors @ block.T], axis=1)  # (batch, kept + block)
        best = take_best(np.concatenate([best.rows, ids], axis=1), scores, top_k)
        first += len(block)
    return best


def take_best(rows: NDArray[np.int64], scores: NDArray[np.float32], top_k: int) -> Neighbours:
    """Take the best of rows, and of equal ones the first. *Shape:* ``(batch, num_rows)``."""
    best = np.argsort(-scores, axis=1, kind="stable")[:, :top_k]
    return Neighbours(
        np.take_along_axis(rows, best, axis=1), np.take_along_axis(scores, best, axis=1)
    )


def measure_recall(found: Neighbours, exact: Neighbours) -> float:
    """Share of the best rows that a search found; rows that tie with the last of them count."""
    worst = exact.scores.min(axis=1, keepdims=True)
    hits = (found.rows >= 0) & (found.scores >= worst - 1e-5)
    return float(hits.sum() / exact.rows.size)


def tune_probes(
    searcher_of: Callable[[int], Searcher],
    *,
    num_lists: int,
    probes: NDArray[np.float32],
    exact: Neighbours,
    min_recall: float,
) -> tuple[int, float]:
    """Find the smallest power of two of lists to read that reaches a recall.

    ``searcher_of`` makes the searcher that reads so many lists, ``exact`` is what exact search
    finds for the probes, *shape* ``(batch, dim)``. Gives the number of lists read, and the recall;
    the best there is if none reaches it.
    """
    top_k = exact.rows.shape[1]
    num_probes, limit = 1, max(1, int(MAX_PROBED_SHARE * num_lists))
    while True:
        recall = measure_recall(searcher_of(num_probes).search(probes, top_k=top_k), exact)
        if recall >= min_recall or num_probes >= limit:
            return num_probes, recall
        num_probes = min(2 * num_probes, limit)


def _find_best(scores: NDArray[np.float32], top_k: int) -> NDArray[np.int64]:
    # of equal scores the first row counts as better; sorting all of them would take ten times as
    # long as the product
    rows: NDArray[np.int64] = np.arange(len(scores))
    if 0 < top_k < len(scores):
        rows = np.flatnonzero(scores >= np.partition(scores, -top_k)[-top_k])
    return rows[np.argsort(-scores[rows], kind="stable")[:top_k]]
