"""Runs of words: texts go in, a hash of every n words in a row comes out.

What two collections share is told by them: references and an index, or evaluation and training.
"""

import hashlib
import re

import numpy as np
from numpy.typing import NDArray

ORDER = 13  # as GPT-3 and its successors count contamination
WORD = re.compile(r"\w+")
BASE = np.uint64(0x9E3779B97F4A7C15)
MAX_KNOWN_WORDS = 1_000_000  # words whose hash is kept; bounds memory


class GramHasher:
    """Hashes the n-grams of texts; case, marks and spacing do not count.

    :param order: The n.
    """

    def __init__(self, order: int) -> None:
        self._order = order
        self._known: dict[str, int] = {}

    def hash_text(self, text: str) -> NDArray[np.uint64]:
        """Hash every n-gram of a text.

        :param text: The text.
        :returns: Hashes in order; empty below n words. *Shape:* ``(num_words - n + 1,)``
        """
        words = WORD.findall(text.lower())
        num_grams = len(words) - self._order + 1
        if num_grams <= 0:
            return np.zeros(0, dtype=np.uint64)
        hashes = np.array([self._hash_word(word) for word in words], dtype=np.uint64)
        grams = np.zeros(num_grams, dtype=np.uint64)
        for i in range(self._order):
            grams = grams * BASE + hashes[i : i + num_grams]  # wraps, as hashes do
        return grams

    def _hash_word(self, word: str) -> int:
        found = self._known.get(word)
        if found is None:
            digest = hashlib.blake2b(word.encode(errors="surrogatepass"), digest_size=8).digest()
            found = int.from_bytes(digest, "little")
            if len(self._known) < MAX_KNOWN_WORDS:
                self._known[word] = found
        return found
