"""Word scores.

Prefix vectors go in, ``q_start · S`` and ``q_end · E`` over all gathered words come out, exactly.
"""

from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cog.index.records import GatheredChunks
from cog.index.tables.quantise import StoredVectors
from cog.model.integers import has_int8_dot_products, multiply_rows
from cog.model.vector_code import VectorCodes

Chosen = tuple[Tensor | None, Tensor | None]
ALL: Chosen = (None, None)
BLOCK_VECTORS = 1024  # restored at once on a CPU; about 1 MB, which its own cache holds


class WordScorer(Protocol):
    """Scores every gathered word against start and end queries."""

    def score_words(
        self, start_queries: Tensor, end_queries: Tensor, chosen: Chosen = ALL
    ) -> tuple[Tensor, Tensor]:
        """Multiply queries with start vectors and end vectors.

        :param start_queries: *Shape:* ``(num_queries, dim)`` float32
        :param end_queries: *Shape:* ``(num_queries, dim)`` float32
        :param chosen: Positions of the words whose start vectors, and of those whose end vectors
            are meant; None for all. *Shape:* ``(num_begins,)`` and ``(num_ends,)`` int64
        :returns: Start and end scores, of *Shape:* ``(num_queries, num_begins)`` and
            ``(num_queries, num_ends)``, float32
        """


class Query:
    """What the next words of some texts that share a pool are asked of its words with.

    Start and end queries are of *shape* ``(num_texts, dim)``, float32. Scores of all words are
    computed for all these texts together, once they are wanted.
    """

    def __init__(self, scorer: WordScorer, start: Tensor, end: Tensor) -> None:
        self._scorer, self._queries = scorer, (start, end)
        self._scores: tuple[Tensor, Tensor] | None = None

    def score(self, text: int, chosen: Chosen = ALL) -> tuple[Tensor, Tensor]:
        """Score words for one text.

        *Shape:* ``(num_begins,)`` and ``(num_ends,)``, float32
        """
        if chosen is not ALL:
            start, end = (each[text : text + 1] for each in self._queries)
            starts, ends = self._scorer.score_words(start, end, chosen)
            return starts[0], ends[0]
        if self._scores is None:
            self._scores = self._scorer.score_words(*self._queries)
        return self._scores[0][text], self._scores[1][text]


class FloatScorer:
    """Scores with vectors restored to float32; runs on any device.

    On a CPU they stay as they are stored, in a quarter of the memory, and a block of them is
    restored at a time; elsewhere all are restored once.
    """

    def __init__(self, start: StoredVectors, end: StoredVectors, *, device: torch.device) -> None:
        self._start = _prepare(start, device)
        self._end = _prepare(end, device)

    def score_words(
        self, start_queries: Tensor, end_queries: Tensor, chosen: Chosen = ALL
    ) -> tuple[Tensor, Tensor]:
        """Multiply queries with start vectors and end vectors, as every scorer does."""
        return (
            _multiply_blocks(start_queries, *_choose(self._start, chosen[0])),
            _multiply_blocks(end_queries, *_choose(self._end, chosen[1])),
        )


class IntegerScorer:
    """Scores the stored int8 vectors as they are, in a quarter of the memory traffic of float32.

    A query is written as a sum of three int8 vectors with falling scales, which together hold it to
    float32's precision; products of int8 vectors are exact in int32.
    """

    def __init__(self, start: StoredVectors, end: StoredVectors) -> None:
        self._start = _tensor(start.vectors), _tensor(start.scales)
        self._end = _tensor(end.vectors), _tensor(end.scales)

    def score_words(
        self, start_queries: Tensor, end_queries: Tensor, chosen: Chosen = ALL
    ) -> tuple[Tensor, Tensor]:
        """Multiply queries with start vectors and end vectors, as every scorer does."""
        return (
            multiply_rows(start_queries, *_choose(self._start, chosen[0])),
            multiply_rows(end_queries, *_choose(self._end, chosen[1])),
        )


class CodedScorer:
    """Scores the integers of a code: a query is folded into their steps, once for all words."""

    def __init__(self, codes: VectorCodes, integers: WordScorer, *, device: torch.device) -> None:
        self._integers = integers
        self._folds = [
            (_tensor(code.decode).to(device), _tensor(code.offset).to(device))
            for code in (codes.start, codes.end)
        ]

    def score_words(
        self, start_queries: Tensor, end_queries: Tensor, chosen: Chosen = ALL
    ) -> tuple[Tensor, Tensor]:
        """Multiply queries with start vectors and end vectors, as every scorer does."""
        (of_starts, start_offset), (of_ends, end_offset) = self._folds
        start, end = self._integers.score_words(
            start_queries @ of_starts.T, end_queries @ of_ends.T, chosen
        )
        start += (start_queries @ start_offset)[:, None]
        end += (end_queries @ end_offset)[:, None]
        return start, end


def make_scorer(
    chunks: GatheredChunks,
    *,
    device: torch.device,
    begin_words: NDArray[np.int64] | None = None,
    end_words: NDArray[np.int64] | None = None,
) -> WordScorer:
    """Choose how words are scored: integers on a CPU with int8 products, float32 elsewhere.

    ``begin_words`` are those whose start vectors are scored, ``end_words`` those whose end vectors
    are; None for all.
    """
    begins = slice(None) if begin_words is None else begin_words
    ends = slice(None) if end_words is None else end_words
    start = StoredVectors(chunks.start_vectors[begins], chunks.start_scales[begins])
    end = StoredVectors(chunks.end_vectors[ends], chunks.end_scales[ends])
    is_integer = chunks.start_vectors.dtype == np.int8
    scorer: WordScorer
    if is_integer and device.type == "cpu" and has_int8_dot_products():
        scorer = IntegerScorer(start, end)
    else:
        scorer = FloatScorer(start, end, device=device)
    return scorer if chunks.codes is None else CodedScorer(chunks.codes, scorer, device=device)


def _prepare(stored: StoredVectors, device: torch.device) -> tuple[Tensor, Tensor]:
    vectors = _tensor(stored.vectors).to(device)
    is_kept = device.type == "cpu"
    return vectors if is_kept else vectors.float(), _tensor(stored.scales).to(device)


def _choose(stored: tuple[Tensor, Tensor], positions: Tensor | None) -> tuple[Tensor, Tensor]:
    if positions is None:
        return stored
    vectors, scales = stored
    return vectors.index_select(0, positions), scales.index_select(0, positions)


def _multiply_blocks(queries: Tensor, vectors: Tensor, scales: Tensor) -> Tensor:
    num_vectors = max(1, len(vectors))
    size = num_vectors if vectors.dtype == torch.float32 else BLOCK_VECTORS
    blocks = [vectors[first : first + size] for first in range(0, num_vectors, size)]
    return torch.cat([queries @ block.float().T for block in blocks], dim=1).mul_(scales)


def _tensor(array: "NDArray[np.generic]") -> Tensor:
    # gathered arrays may be read-only views of Arrow buffers, which torch accepts with a warning
    # only
    return torch.from_numpy(array if array.flags.writeable else array.copy())
