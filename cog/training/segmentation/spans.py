"""Admissible spans: flags of words and the runs they lie in go in, a mask of spans comes out."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cog.model.words import BARRED, CAN_END, CAN_START


def mark_spans(
    word_flags: NDArray[np.uint8], run_ends: NDArray[np.int64], *, min_words: int, max_words: int
) -> NDArray[np.bool_]:
    """Mark the spans that may be copied.

    A phrase lies in one run (a chunk, or a document), holds no barred word, and begins and ends
    with words that may.

    :param word_flags: Bits of ``cog.model.words``. *Shape:* ``(num_words,)``
    :param run_ends: For each word, one past the last word of its run. *Shape:* ``(num_words,)``
    :param min_words: Number of words of a phrase, at least; not under 2.
    :param max_words: Number of words of a phrase, at most.
    :returns: Whether the span of ``k + 2`` words from word ``w`` may be copied.
        *Shape:* ``(num_words, max_words - 1)``
    """
    num_words = len(word_flags)
    mask = np.zeros((num_words, max_words - 1), dtype=bool)
    stops = find_stops(word_flags, run_ends)
    can_end = (word_flags & CAN_END) != 0
    can_start = (word_flags & CAN_START) != 0
    words = np.arange(num_words)
    for num in range(max(min_words, 2), max_words + 1):
        last = words[: max(num_words - num + 1, 0)] + num - 1
        mask[: len(last), num - 2] = (
            can_start[: len(last)] & can_end[last] & (last < stops[: len(last)])
        )
    return mask


def find_stops(word_flags: NDArray[np.uint8], run_ends: NDArray[Any]) -> NDArray[Any]:
    """For each word, the first word at or after it that no phrase from here may hold.

    :param word_flags: Bits of ``cog.model.words``. *Shape:* ``(num_words,)``
    :param run_ends: For each word, one past the last word of its run. *Shape:* ``(num_words,)``
    :returns: The next barred word, or the end of the run. *Shape:* ``(num_words,)``
    """
    num_words = len(word_flags)
    barred = np.arange(num_words, dtype=run_ends.dtype)
    barred[(word_flags & BARRED) == 0] = num_words
    barred = np.minimum.accumulate(barred[::-1])[::-1]
    stops: NDArray[Any] = np.minimum(barred, run_ends)
    return stops
