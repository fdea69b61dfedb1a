"""Near duplicates: texts go in, which of them repeat an earlier one comes out (MinHash and LSH).

Two documents are alike by the share of runs of five words that they have in common (Broder 1997).
It is estimated from 128 hashes: one standard deviation is at most 0.044. Hashes lie on disk, 512
bytes a document; memory holds 24 bytes a document and 8 a pair that was found.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cog.closing import Closing
from cog.hashing import hash_word

NUM_HASHES = 128
RUN_WORDS = 5
SEED = 0

_MAX_MISSED = 0.003  # chance that a pair that is just alike enough never meets
_MAX_FIRSTS = 16  # documents of one bucket that the others are compared with
_ROWS_AT_ONCE = 4096
_WORD = re.compile(r"\w+")
_MULTIPLIERS = np.random.default_rng(SEED).integers(1, 1 << 63, NUM_HASHES, dtype=np.uint64) | 1
_SHIFTS = np.random.default_rng(SEED + 1).integers(0, 1 << 63, NUM_HASHES, dtype=np.uint64)
_BASE = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xBF58476D1CE4E5B9)


def hash_runs(text: str) -> NDArray[np.uint64]:
    """Hash the runs of five words of a text; case and punctuation do not count.

    A shorter text is one run. *Shape:* ``(num_runs,)``.
    """
    found = (hash_word(match[0].casefold()) for match in _WORD.finditer(text))
    words = np.fromiter(found, dtype=np.uint64)
    size = min(RUN_WORDS, max(1, len(words)))
    if len(words) == 0:
        words = np.array([hash_word(text.strip())], dtype=np.uint64)
    runs = np.zeros(len(words) - size + 1, dtype=np.uint64)
    for place in range(size):
        runs = (runs ^ words[place : place + len(runs)]) * _BASE
    # words in a row differ little from the next run's: without this, so would their hashes
    runs ^= runs >> np.uint64(31)
    runs *= _MIX
    return runs ^ (runs >> np.uint64(29))


def sign_text(text: str) -> NDArray[np.uint32]:
    """Make the MinHash signature of a text. *Shape:* ``(NUM_HASHES,)``."""
    runs = hash_runs(text)
    signature = np.full(NUM_HASHES, np.iinfo(np.uint32).max, dtype=np.uint32)
    for start in range(0, len(runs), _ROWS_AT_ONCE):
        part = runs[start : start + _ROWS_AT_ONCE, None] * _MULTIPLIERS + _SHIFTS
        smallest = (part >> np.uint64(32)).min(axis=0).astype(np.uint32)
        np.minimum(signature, smallest, out=signature)
    return signature


class SignatureWriter(Closing):
    """Writes signatures to a file, one after the other."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("wb")
        self.num_texts = 0

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def write(self, text: str) -> None:
        """Append the signature of a text."""
        self._file.write(sign_text(text).tobytes())
        self.num_texts += 1

    def load(self) -> NDArray[np.uint32]:
        """Map what was written, on disk. *Shape:* ``(num_texts, NUM_HASHES)``."""
        self._file.flush()
        shape = (self.num_texts, NUM_HASHES)
        if self.num_texts == 0:
            return np.empty(shape, dtype=np.uint32)
        return np.memmap(self._path, dtype=np.uint32, mode="r", shape=shape)


def find_pairs(signatures: NDArray[np.uint32], threshold: float) -> NDArray[np.int64]:
    """Find texts that share ``threshold`` or more of their hashes, ``(num_texts, NUM_HASHES)``.

    Gives the later and the earlier text of each pair, once. *Shape:* ``(num_pairs, 2)``
    """
    num_rows = choose_rows(threshold)
    pairs = np.empty((0, 2), dtype=np.int64)
    for start in range(0, NUM_HASHES - num_rows + 1, num_rows):
        # texts that agree on a whole band of hashes meet in a bucket, and are compared on all
        found = [pairs]
        for bucket in _iter_buckets(signatures[:, start : start + num_rows]):
            found += _compare(signatures, bucket, threshold)
        pairs = np.unique(np.concatenate(found), axis=0)
    return pairs


def find_originals(num_texts: int, pairs: NDArray[np.int64]) -> NDArray[np.int64]:
    """Decide which texts stay: each that is like no earlier one that stays.

    Gives for each text the earlier one that it repeats, -1 if it stays. *Shape:* ``(num_texts,)``.
    """
    originals = np.full(num_texts, -1, dtype=np.int64)
    for later, earlier in pairs.tolist():  # sorted by the later text
        if originals[later] < 0 and originals[earlier] < 0:
            originals[later] = earlier
    return originals


def choose_rows(threshold: float) -> int:
    """Choose the most hashes of a bucket with which a pair shares one almost surely."""
    # a pair of similarity s agrees on a band of r hashes with chance s ** r, and misses all of
    # b bands with chance (1 - s ** r) ** b (Leskovec et al., Mining of Massive Datasets, 3.4)
    for num_rows in (16, 8, 6, 5, 4, 3):
        num_bands = NUM_HASHES // num_rows
        if (1.0 - threshold**num_rows) ** num_bands <= _MAX_MISSED:
            return num_rows
    return 2


def _iter_buckets(band: NDArray[np.uint32]) -> Iterator[NDArray[np.int64]]:
    keys = np.zeros(len(band), dtype=np.uint64)
    for column in range(band.shape[1]):
        keys = (keys ^ band[:, column]) * _BASE
        keys ^= keys >> np.uint64(32)
    order = np.argsort(keys, kind="stable")  # equal keys stand together, in the order of texts
    ordered = keys[order]
    edges = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    bounds = np.concatenate([[0], edges, [len(ordered)]])
    for place in np.flatnonzero(np.diff(bounds) > 1).tolist():
        yield order[bounds[place] : bounds[place + 1]]


def _compare(
    signatures: NDArray[np.uint32], bucket: NDArray[np.int64], threshold: float
) -> list[NDArray[np.int64]]:
    found = []
    rest = bucket
    for _ in range(_MAX_FIRSTS):
        if len(rest) < 2:
            break
        first, rest = rest[0], rest[1:]  # what is like it is not compared any further
        shares = [
            (signatures[rest[start : start + _ROWS_AT_ONCE]] == signatures[first]).mean(axis=1)
            for start in range(0, len(rest), _ROWS_AT_ONCE)
        ]
        is_alike = np.concatenate(shares) >= threshold
        alike = rest[is_alike]
        found.append(np.stack([alike, np.full(len(alike), first)], axis=1))
        rest = rest[~is_alike]
    return found
