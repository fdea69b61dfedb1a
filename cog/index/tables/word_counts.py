"""Word counts: the words of an index go in; how often each stands there, and its bits, come out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cog.hashing import hash_word

WORD_COUNTS = "word_counts.npy"
MERGED_WORDS = 1 << 18  # what is counted at once
ROW = np.dtype([("word_hash", "<u8"), ("form_hash", "<u8"), ("count", "<i8")])


@dataclass(frozen=True, slots=True)
class WordCounts:
    """How often each word stands in an index; rows are sorted by word, each once."""

    # (num_rows,) hash of the word's text with its leading space
    word_hashes: NDArray[np.uint64]
    # (num_rows,) hash of the text in lower case without the space, so that counts of
    # " The", "The" and " the" can be added up
    form_hashes: NDArray[np.uint64]
    counts: NDArray[np.int64]  # (num_rows,) how often it stands there

    @property
    def num_words(self) -> int:
        """Number of words in the index."""
        return int(self.counts.sum())


class WordBits:
    """The information of words: minus the logarithm of a form's share among all words."""

    def __init__(self, counts: WordCounts) -> None:
        self._hashes = counts.word_hashes
        total = np.log2(counts.num_words)
        _, rows = np.unique(counts.form_hashes, return_inverse=True)
        sums = np.bincount(rows, weights=counts.counts)  # of each form, however it is written
        bits = total - np.log2(sums[rows])
        self._bits = np.append(bits, total).astype(np.float32)  # the last is that of other words

    def get(self, word_hashes: NDArray[np.uint64]) -> NDArray[np.float32]:
        """Bits of some words; one that is not counted counts as one. *Shape:* ``(num_words,)``."""
        rows = np.searchsorted(self._hashes, word_hashes)
        is_known = self._hashes[np.minimum(rows, len(self._hashes) - 1)] == word_hashes
        return self._bits[np.where(is_known, rows, len(self._hashes))]


class WordCounter:
    """Counts words chunk by chunk, in memory that grows with the number of different words."""

    def __init__(self) -> None:
        self._counts = WordCounts(
            np.zeros(0, np.uint64), np.zeros(0, np.uint64), np.zeros(0, np.int64)
        )
        self._chunks: list[tuple[str, NDArray[np.int32]]] = []
        self._hashes: list[NDArray[np.uint64]] = []
        self._num_words = 0

    def add(
        self, word_hashes: NDArray[np.uint64], text: str, word_chars: NDArray[np.int32]
    ) -> None:
        """Count the ``(num_words,)`` words of a chunk, by the bounds of them in any text."""
        self._hashes.append(word_hashes)
        self._chunks.append((text, word_chars))
        self._num_words += len(word_hashes)
        if self._num_words >= MERGED_WORDS:
            self._merge()

    def get_counts(self) -> WordCounts:
        """What was counted so far."""
        self._merge()
        return self._counts

    def _merge(self) -> None:
        if not self._hashes:
            return
        before = self._counts
        found, firsts, counts = np.unique(
            np.concatenate(self._hashes), return_index=True, return_counts=True
        )
        # both lists are sorted: the rank among the old is where a word is counted, or put in
        rows = np.searchsorted(before.word_hashes, found)
        is_known = np.isin(found, before.word_hashes, assume_unique=True)
        sums = before.counts.copy()
        sums[rows[is_known]] += counts[is_known]
        is_new = ~is_known
        forms = np.array(
            [hash_word(get_form(word)) for word in self._iter_words(firsts[is_new])],
            dtype=np.uint64,
        )
        self._counts = WordCounts(
            np.insert(before.word_hashes, rows[is_new], found[is_new]),
            np.insert(before.form_hashes, rows[is_new], forms),
            np.insert(sums, rows[is_new], counts[is_new]),
        )
        self._chunks, self._hashes, self._num_words = [], [], 0

    def _iter_words(self, positions: NDArray[np.int64]) -> Iterator[str]:
        # a position among all words since the last merge becomes a chunk and a word in it
        starts = np.cumsum([0, *(len(each) for each in self._hashes)])
        numbers = np.searchsorted(starts, positions, side="right") - 1
        for number, word in zip(
            numbers.tolist(), (positions - starts[numbers]).tolist(), strict=True
        ):
            text, chars = self._chunks[number]
            first, last = (chars[word : word + 2] - chars[0]).tolist()
            yield text[first:last]


def get_form(word: str) -> str:
    """What words have in common that differ in case and leading space only."""
    return word.removeprefix(" ").casefold()


def join_counts(parts: Sequence[WordCounts]) -> WordCounts:
    """Add up the counts of several indexes."""
    if len(parts) == 1:
        return parts[0]
    names = [each.name for each in fields(WordCounts)]
    hashes, forms, counts = (
        np.concatenate([getattr(part, name) for part in parts]) for name in names
    )
    words, firsts, rows = np.unique(hashes, return_index=True, return_inverse=True)
    sums = np.zeros(len(words), dtype=np.int64)
    np.add.at(sums, rows, counts)
    return WordCounts(words, forms[firsts], sums)


def save_counts(folder: Path, counts: WordCounts) -> None:
    """Write the counts of an index."""
    rows = np.zeros(len(counts.counts), dtype=ROW)
    columns = (counts.word_hashes, counts.form_hashes, counts.counts)
    for name, column in zip(ROW.names or (), columns, strict=True):
        rows[name] = column
    np.save(folder / WORD_COUNTS, rows)


def load_counts(folder: Path) -> WordCounts:
    """Read the counts of an index; a bad file is a ``ValueError`` or an ``OSError``."""
    rows = np.load(folder / WORD_COUNTS)
    if rows.dtype != ROW or not len(rows):
        raise ValueError(f"{len(rows)} rows of {rows.dtype} in {WORD_COUNTS}")
    return WordCounts(*(np.ascontiguousarray(rows[name]) for name in ROW.names or ()))
