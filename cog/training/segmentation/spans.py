"""Admissible spans: flags of words and the runs they lie in go in, a mask of spans comes out."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cog.model.words import BARRED, CAN_END, CAN_START


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
