"""Runs of words: texts go in, a hash of every n words in a row comes out.

What two collections share is told by them: references and an index, or evaluation and training.
"""

import re

import numpy as np
from numpy.typing import NDArray

from cog.hashing import hash_word

ORDER = 13  # as GPT-3 and its successors count contamination
WORD = re.compile(r"\w+")
BASE = np.uint64(0x9E3779B97F4A7C15)


def hash_grams(text: str, *, order: int = ORDER) -> NDArray[np.uint64]:
    """Hash every n-gram of a text in order; case, marks and spacing do not count.

    *Shape:* ``(num_words - n + 1,)``; empty below n words
    """
    words = WORD.findall(text.lower())
    num_grams = len(words) - order + 1
    if num_grams <= 0:
        return np.zeros(0, dtype=np.uint64)
    hashes = np.array([hash_word(word) for word in words], dtype=np.uint64)
    grams = np.zeros(num_grams, dtype=np.uint64)
    for i in range(order):
        grams = grams * BASE + hashes[i : i + num_grams]  # wraps, as hashes do
    return grams
