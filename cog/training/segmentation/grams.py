"""Exact n-grams: hashed words go in, numbers of words and of their runs come out.

Two have the same number if and only if they have the same text. Which runs may be copied is told by
the flags of words.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cog.model.words import BARRED, CAN_END, CAN_START

BLOCK_WORDS = 1 << 18  # walked as a Python list, which takes many times their memory


@dataclass(frozen=True, slots=True)
class WordTexts:
    """The texts of words that lie side by side."""

    text: bytes
    bounds: NDArray[np.int64]  # (num_words + 1,) word `i` is bytes `[bounds[i], bounds[i + 1])`


@dataclass(frozen=True, slots=True)
class GramLevel:
    """All runs of one number of words whose text occurs more than once."""

    num_words: int
    # (num_runs,) first word of each run; those of one text side by side, ascending
    firsts: NDArray[Any]
    grams: NDArray[Any]  # (num_runs,) number of each run's text, ascending
    # (num_grams + 1,) runs of text `g` are `firsts[offsets[g]:offsets[g + 1]]`
    offsets: NDArray[np.int64]

    @property
    def num_grams(self) -> int:
        """Number of different texts."""
        return len(self.offsets) - 1


def number_words(hashes: NDArray[np.uint64], texts: WordTexts) -> NDArray[np.int64]:
    """Number words from 0 so that two have the same number if and only if they have the same text.

    Hashes do the work, texts are compared: words of one hash that differ are told apart.
    """
    _, first, numbers = np.unique(hashes, return_index=True, return_inverse=True)
    if _same_texts(texts, np.arange(len(hashes)), first[numbers]).all():
        return numbers.astype(np.int64)
    known: dict[bytes, int] = {}
    bounds = texts.bounds.tolist()
    exact = [
        known.setdefault(texts.text[start:end], len(known))
        for start, end in itertools.pairwise(bounds)
    ]
    return np.array(exact, dtype=np.int64)


def iter_levels(
    words: NDArray[Any],
    run_ends: NDArray[Any],
    groups: NDArray[Any],
    *,
    min_words: int,
    max_words: int,
    firsts: NDArray[Any] | None = None,
) -> Iterator[GramLevel]:
    """Find the runs of 1, 2, … words whose text occurs in more than one group, exactly.

    A run of ``n`` words is numbered by the pair (its first ``n - 1`` words, its last word), so no
    hash of a run is ever relied on. Runs that occur in one group only are dropped from level to
    level: few are left after four words.

    :param words: Number of each word; int32 halves the memory. *Shape:* ``(num_words,)``
    :param run_ends: For each word, one past the last word that a run from it may hold.
        *Shape:* ``(num_words,)``
    :param groups: Group of each word (its chunk, or its document), ascending.
        *Shape:* ``(num_words,)``
    :param min_words: Number of words of the first level, 1 or 2.
    :param max_words: Number of words of the last level, at most.
    :param firsts: Words that a run may begin with, ascending; None for all. *Shape:* ``(num,)``
    :yields: One level per number of words, until none is left.
    """
    if firsts is None:
        firsts = np.arange(len(words), dtype=words.dtype)
    grams = np.zeros_like(firsts) if min_words == 1 else words[firsts]
    vocab_size = int(words.max()) + 1 if len(words) else 1
    for num_words in range(min_words, max_words + 1):
        is_inside = firsts + num_words <= run_ends[firsts]
        firsts, grams = firsts[is_inside], grams[is_inside]
        # gram and last word in one number: equal keys are equal runs
        keys = grams.astype(np.int64)
        keys *= vocab_size
        keys += words[firsts + (num_words - 1)]
        order = np.argsort(keys, kind="stable")
        keys, firsts = keys[order], firsts[order]
        del order  # of the size of a corpus, as keys are: one less while the next is made
        starts = np.flatnonzero(np.diff(keys, prepend=-1))
        del keys
        if not len(starts):
            return
        sizes = np.diff(starts, append=len(firsts))
        # the stable sort left the places of one text ascending, and so their groups: the ends tell
        is_shared = groups[firsts[starts]] != groups[firsts[starts + sizes - 1]]
        firsts, sizes = firsts[np.repeat(is_shared, sizes)], sizes[is_shared]
        if not len(sizes):
            return
        grams = np.repeat(np.arange(len(sizes), dtype=words.dtype), sizes)
        yield GramLevel(num_words, firsts, grams, np.append(0, np.cumsum(sizes)))


def expand_ranges(starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Write out ranges of integers one after another. *Shape:* ``(sizes.sum(),)``."""
    offsets = np.cumsum(sizes) - sizes  # where each range lies in the result
    return np.repeat(starts - offsets, sizes) + np.arange(int(sizes.sum()))


def walk_words(lengths: NDArray[Any]) -> NDArray[np.int64]:
    """Go through words from left to right: take the longest phrase, else one word (CoG, app. B).

    Given the number of words of the longest phrase at each word, 0 for none, gives the words at
    which a phrase is taken, ascending. Differs from the authors' code: where two words are not
    found, one is left and the other tried again.
    """
    # where a step leads hangs on every step before, so this is a plain loop
    word = 0
    phrases = [np.zeros(0, dtype=np.int64)]
    for first in range(0, len(lengths), BLOCK_WORDS):
        steps = np.maximum(lengths[first : first + BLOCK_WORDS], 1).tolist()
        visited = []
        while word < first + len(steps):  # the last phrase of a block may reach into the next
            visited.append(word)
            word += steps[word - first]
        starts = np.array(visited, dtype=np.int64)
        phrases.append(starts[lengths[starts] > 0])
    return np.concatenate(phrases)


def _same_texts(
    texts: WordTexts, left: NDArray[np.int64], right: NDArray[np.int64]
) -> NDArray[np.bool_]:
    # whether word `left[i]` has the text of word `right[i]`; only those of one length are read
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


def mark_spans(
    word_flags: NDArray[np.uint8], run_ends: NDArray[np.int64], *, min_words: int, max_words: int
) -> NDArray[np.bool_]:
    """Mark the spans that may be copied.

    A phrase lies in one run (a chunk), whose end is given for each word, holds no barred word, and
    begins and ends with words that may. Gives whether the span of ``k + 2`` words from word ``w``
    may be copied. *Shape:* ``(num_words, max_words - 1)``
    """
    num_words = len(word_flags)
    mask = np.zeros((num_words, max_words - 1), dtype=bool)
    stops = find_stops(word_flags, run_ends)
    can_end = (word_flags & CAN_END) != 0
    can_start = (word_flags & CAN_START) != 0
    for span_words in range(min_words, max_words + 1):
        last = np.arange(span_words - 1, num_words)  # of the spans from word 0 on
        num = len(last)
        mask[:num, span_words - 2] = can_start[:num] & can_end[last] & (last < stops[:num])
    return mask


def find_stops(word_flags: NDArray[np.uint8], run_ends: NDArray[Any]) -> NDArray[Any]:
    """For each word, the next barred word or the end of its run: no phrase reaches past it."""
    num_words = len(word_flags)
    barred = np.arange(num_words, dtype=run_ends.dtype)
    barred[(word_flags & BARRED) == 0] = num_words
    barred = np.minimum.accumulate(barred[::-1])[::-1]  # of what comes after a word, the nearest
    stops: NDArray[Any] = np.minimum(barred, run_ends)
    return stops
