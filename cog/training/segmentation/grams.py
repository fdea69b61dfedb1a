"""Exact n-grams: hashed words go in, numbers of words and of their runs come out.

Two have the same number if and only if they have the same text.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class WordTexts:
    """The texts of words that lie side by side.

    :param text: All words, joined, UTF-8.
    :param bounds: Word ``i`` is bytes ``[bounds[i], bounds[i + 1])``. *Shape:* ``(num_words + 1,)``
    """

    text: bytes
    bounds: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class GramLevel:
    """All runs of one number of words whose text occurs more than once.

    :param num_words: Number of words of a run.
    :param firsts: First word of each run; those of one text side by side, ascending.
        *Shape:* ``(num_runs,)`` int64
    :param grams: Number of each run's text, ascending. *Shape:* ``(num_runs,)`` int64
    :param offsets: Runs of text ``g`` are ``firsts[offsets[g]:offsets[g + 1]]``.
        *Shape:* ``(num_grams + 1,)`` int64
    """

    num_words: int
    firsts: NDArray[np.int64]
    grams: NDArray[np.int64]
    offsets: NDArray[np.int64]

    @property
    def num_grams(self) -> int:
        """Number of different texts.

        :returns: The count.
        """
        return len(self.offsets) - 1


def number_words(hashes: NDArray[np.uint64], texts: WordTexts) -> NDArray[np.int64]:
    """Number words so that two have the same number if and only if they have the same text.

    Hashes do the work, texts are compared: words of one hash that differ are told apart.

    :param hashes: A hash of each word; equal texts have equal hashes. *Shape:* ``(num_words,)``
    :param texts: The words' texts.
    :returns: Numbers from 0. *Shape:* ``(num_words,)``
    """
    _, first, numbers = np.unique(hashes, return_index=True, return_inverse=True)
    if _same_texts(texts, np.arange(len(hashes)), first[numbers]).all():
        return numbers.astype(np.int64)
    known: dict[bytes, int] = {}
    bounds = texts.bounds.tolist()
    exact = [
        known.setdefault(texts.text[start:end], len(known))
        for start, end in zip(bounds, bounds[1:], strict=False)
    ]
    return np.array(exact, dtype=np.int64)


def iter_levels(
    words: NDArray[np.int64],
    run_ends: NDArray[np.int64],
    groups: NDArray[np.int64],
    *,
    max_words: int,
) -> Iterator[GramLevel]:
    """Find the runs of 1, 2, … words whose text occurs in more than one group, exactly.

    A run of ``n`` words is numbered by the pair (its first ``n - 1`` words, its last word), so no
    hash of a run is ever relied on.

    :param words: Number of each word. *Shape:* ``(num_words,)``
    :param run_ends: For each word, one past the last word that a run from it may hold.
        *Shape:* ``(num_words,)``
    :param groups: Group of each word (its chunk, or its document), ascending.
        *Shape:* ``(num_words,)``
    :param max_words: Number of words of a run, at most.
    :yields: One level per number of words, until none is left.
    """
    firsts = np.arange(len(words))
    grams = np.zeros(len(words), dtype=np.int64)
    vocab_size = int(words.max()) + 1 if len(words) else 1
    for num_words in range(1, max_words + 1):
        is_inside = firsts + num_words <= run_ends[firsts]
        firsts, grams = firsts[is_inside], grams[is_inside]
        keys = grams * vocab_size + words[firsts + num_words - 1]
        order = np.argsort(keys, kind="stable")
        keys, firsts = keys[order], firsts[order]
        starts = np.flatnonzero(np.diff(keys, prepend=-1))
        ends = np.append(starts[1:], len(keys))
        if len(starts):
            is_shared = groups[firsts[starts]] != groups[firsts[ends - 1]]
            is_kept = np.repeat(is_shared, ends - starts)
            firsts, sizes = firsts[is_kept], (ends - starts)[is_shared]
        else:
            sizes = np.zeros(0, dtype=np.int64)
        if not len(sizes):
            return
        grams = np.repeat(np.arange(len(sizes)), sizes)
        yield GramLevel(num_words, firsts, grams, np.append(0, np.cumsum(sizes)))


def expand_ranges(starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Write out ranges of integers one after another.

    :param starts: First integer of each range. *Shape:* ``(num_ranges,)``
    :param sizes: How many integers each has. *Shape:* ``(num_ranges,)``
    :returns: The integers. *Shape:* ``(sizes.sum(),)``
    """
    offsets = np.cumsum(sizes) - sizes
    return np.repeat(starts - offsets, sizes) + np.arange(int(sizes.sum()))


def _same_texts(
    texts: WordTexts, left: NDArray[np.int64], right: NDArray[np.int64]
) -> NDArray[np.bool_]:
    sizes = np.diff(texts.bounds)
    same: NDArray[np.bool_] = sizes[left] == sizes[right]
    rows = np.flatnonzero(same & (left != right))
    raw = np.frombuffer(texts.text, dtype=np.uint8)
    sizes = sizes[left[rows]]
    differs = (
        raw[expand_ranges(texts.bounds[left[rows]], sizes)]
        != raw[expand_ranges(texts.bounds[right[rows]], sizes)]
    )
    same[rows[np.repeat(np.arange(len(rows)), sizes)[differs]]] = False
    return same
