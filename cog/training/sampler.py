"""Which chunks form which batch: a step's number goes in, chunk numbers come out (no torch).

A batch is a pure function of the seed and the number of its step, so that any number of workers
gives the same batches, and a run that goes on after a break needs nothing but its step.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

DIGITS = 5  # of similarities, so that the order of sums does not decide
MAX_SIMILARITIES = 1 << 26  # that exist at once


@dataclass(frozen=True, slots=True)
class SamplerSettings:
    """How batches are drawn."""

    num_chunks: int
    # number of chunks drawn at random; the rest are their nearest neighbours. As many as
    # `num_chunks` for random batches
    num_seeds: int
    max_of_document: int  # number of chunks of one document among the neighbours of a seed, at most
    seed: int


class BatchSampler:
    """Draws batches from a set of chunks.

    Documents are those of each chunk, *shape* ``(num_candidates,)``; vectors, of unit length, the
    retriever's of all chunks there are, ``(num_all, dim)``; None for random batches.
    """

    def __init__(
        self,
        chunks: NDArray[np.int64],
        documents: NDArray[np.int32],
        vectors: NDArray[np.float32] | None,
        *,
        settings: SamplerSettings,
    ) -> None:
        self._chunks, self._documents, self._vectors = chunks, documents, vectors
        self._settings = settings
        self._size = min(settings.num_chunks, len(chunks))
        is_random = vectors is None or settings.num_seeds >= settings.num_chunks
        self._num_seeds = self._size if is_random else min(settings.num_seeds, self._size)
        self._pass: tuple[int, NDArray[np.int64]] = (-1, np.zeros(0, dtype=np.int64))

    def draw(self, number: int) -> NDArray[np.int64]:
        """Draw the chunks of a batch, each once, by its number from 0."""
        seeds = self._draw_seeds(number)
        taken = list(dict.fromkeys(seeds.tolist()))
        is_taken = np.zeros(len(self._chunks), dtype=bool)
        is_taken[taken] = True
        num_each = math.ceil((self._size - len(taken)) / len(taken))
        for seed, similarities in self._iter_similarities(list(taken)):
            wanted = min(num_each, self._size - len(taken))
            neighbours = self._choose_neighbours(seed, similarities, is_taken, num_wanted=wanted)
            is_taken[neighbours] = True
            taken += neighbours
        if len(taken) < self._size:  # documents ran out of chunks, or a seed came twice
            free = np.flatnonzero(~is_taken)
            random = np.random.default_rng([self._settings.seed, 1, number])
            taken += random.choice(free, self._size - len(taken), replace=False).tolist()
        drawn: NDArray[np.int64] = self._chunks[np.array(taken)]
        return drawn

    def _draw_seeds(self, number: int) -> NDArray[np.int64]:
        # every chunk is a seed once in a pass over the data
        first = number * self._num_seeds
        drawn = range(first, first + self._num_seeds)
        passes = (divmod(each, len(self._chunks)) for each in drawn)
        return np.array([self._permutation(number)[row] for number, row in passes], dtype=np.int64)

    def _permutation(self, number: int) -> NDArray[np.int64]:
        if self._pass[0] != number:
            random = np.random.default_rng([self._settings.seed, 0, number])
            self._pass = (number, random.permutation(len(self._chunks)))
        return self._pass[1]

    def _iter_similarities(self, seeds: list[int]) -> Iterator[tuple[int, NDArray[np.float32]]]:
        # The vectors are larger than memory may be: they are gone through once for many seeds.
        if self._vectors is None:
            return
        step = max(1, MAX_SIMILARITIES // len(self._vectors))
        for first in range(0, len(seeds), step):
            block = seeds[first : first + step]
            table = self._vectors[self._chunks[block]] @ self._vectors.T  # (num_seeds, num_all)
            for seed, row in zip(block, table, strict=True):
                yield seed, np.round(row[self._chunks], DIGITS)

    def _choose_neighbours(
        self,
        seed: int,
        similarities: NDArray[np.float32],
        is_taken: NDArray[np.bool_],
        *,
        num_wanted: int,
    ) -> list[int]:
        similarities[is_taken] = -np.inf
        # more than are wanted, since documents that have given enough are passed over; all are not
        # sorted, for there may be millions
        num_kept = min(len(similarities), 8 * num_wanted)
        if num_kept == 0:
            return []
        lowest = -np.partition(-similarities, num_kept - 1)[num_kept - 1]
        # ties at the lowest are all kept and taken by number: the partition's order is any
        best = np.flatnonzero((similarities >= lowest) & np.isfinite(similarities))
        best = best[np.argsort(-similarities[best], kind="stable")]
        neighbours: list[int] = []
        counts: dict[int, int] = {int(self._documents[seed]): 1}
        for row in best.tolist():
            document = int(self._documents[row])
            if len(neighbours) == num_wanted:
                break
            if counts.get(document, 0) < self._settings.max_of_document:
                counts[document] = counts.get(document, 0) + 1
                neighbours.append(row)
        return neighbours


def split_documents(
    documents: NDArray[np.int32], *, num_held_out: int, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Set whole documents aside for validation, given the document of each chunk.

    Gives the numbers of the chunks to train on, and of those set aside.
    """
    numbers = np.unique(documents)
    chosen = np.random.default_rng([seed, 2]).permutation(numbers)[:num_held_out]
    is_held_out = np.isin(documents, chosen)
    return np.flatnonzero(~is_held_out), np.flatnonzero(is_held_out)
