"""Which documents are kept, held out or seen before: ids and texts go in, decisions come out."""

import hashlib
from bisect import bisect_left

import numpy as np
from numpy.typing import NDArray

from cog.cards import Card
from cog.hashing import hash_text

_MERGE_AT = 1 << 16


def get_position(document_id: str, seed: int) -> float:
    """Place a document in the random order of a seed, evenly in [0, 1).

    A document is in a subset if its position is below the proportion, so subsets of one seed are
    nested, and adding documents never changes where others stand.
    """
    key = f"{seed}\0{document_id}".encode()
    number = int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big")
    return (number >> 11) / (1 << 53)


def is_held_out(card: Card, document_id: str) -> bool:
    """Tell whether prompts are cut from a document, which is then not indexed.

    The end of the random order is held out, so the smaller of nested subsets share their prompts.
    """
    rule = card.prompts
    return rule is not None and get_position(document_id, rule.seed) >= 1.0 - rule.held_out


def is_in_subset(card: Card, document_id: str) -> bool:
    """Tell whether a document belongs to the part a card asks for."""
    subset = card.subset
    if subset is None:
        return True
    position = get_position(document_id, subset.seed)
    if position >= subset.proportion or subset.shard is None:
        return position < subset.proportion
    # rounded alike for every shard, so that each document is in one of them
    return int(position / subset.proportion * subset.shard.of) == subset.shard.number - 1


class SeenTexts:
    """Remembers texts by a 64-bit hash: 8 bytes each, whatever their length.

    Of 10 million different texts, two have the same hash with a chance of one in 370,000.
    """

    def __init__(self) -> None:
        self._old: NDArray[np.uint64] = np.empty(0, dtype=np.uint64)
        self._sorted = self._old.data  # the same, for bisect: faster than numpy for one key
        self._new: set[int] = set()

    def __contains__(self, text: str) -> bool:
        """Whether a text was seen."""
        return self._has(hash_text(text))

    def add(self, text: str) -> bool:
        """Remember a text."""
        key = hash_text(text)
        if self._has(key):
            return False
        self._new.add(key)
        if len(self._new) >= _MERGE_AT:
            fresh = np.sort(np.fromiter(self._new, dtype=np.uint64, count=len(self._new)))
            # two sorted runs, which a stable sort only merges
            self._old = np.sort(np.concatenate([self._old, fresh]), kind="stable")
            self._sorted = self._old.data
            self._new = set()
        return True

    def _has(self, key: int) -> bool:
        place = bisect_left(self._sorted, key)
        return key in self._new or (place < len(self._sorted) and self._sorted[place] == key)
