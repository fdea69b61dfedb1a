"""What may not be copied into a text any more: its copies and its words go in, a mask comes out."""

import re
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cog.decoding.candidates import HASH_BASE
from cog.decoding.pool import Pool
from cog.records import Decoding

TWIN_WORDS = 6  # a passage of this length that stands elsewhere too is the same one
_WORD = re.compile(r"\w+")


@dataclass(slots=True)
class Blocks:
    """The words of a pool that a text may not copy.

    No word of a document is copied twice, nor a passage of ``TWIN_WORDS`` words that was copied
    from another document; and documents that are not about the subject bring no names.

    :param decoding: Says which of these rules hold.
    :param text: What was read for names: the prefix, and what is written.
    :param copied: Copies so far: position of the document, first and one past the last character.
    :param passages: Hashes of the passages in them.
    :param mask: Words that may not be copied; None if all may. *Shape:* ``(num_words,)``
    """

    decoding: Decoding
    text: str = ""
    copied: list[tuple[int, int, int]] = field(default_factory=list)
    passages: set[int] = field(default_factory=set)
    mask: NDArray[np.bool_] | None = None
    _is_foreign: NDArray[np.bool_] | None = None  # names, by word of the pool
    _is_copied: NDArray[np.bool_] | None = None

    @property
    def copied_words(self) -> NDArray[np.bool_] | None:
        """Words that were copied, and their twins; None if none were."""
        return self._is_copied

    def enter(self, pool: Pool) -> None:
        """Mark what is blocked in a pool that the text copies from now on."""
        self._is_copied = self._is_foreign = None
        if self.copied:
            self._is_copied = np.zeros(pool.num_words, dtype=bool)
            self._mark_copies(pool, self.copied, self.passages)
        if pool.names is not None:
            self._is_foreign = np.zeros(pool.num_words, dtype=bool)
            self._is_foreign[pool.names.barred] = True
            known = set(_WORD.findall(self.text))
            for name, words in pool.names.words_of.items():
                if name not in known:
                    self._is_foreign[words] = True
        self._join()

    def add_copy(self, pool: Pool, first: int, end: int) -> None:
        """Block the words ``[first, end)`` of a pool, which were copied."""
        if not self.decoding.copy_once:
            return
        ordinal, begin = pool.get_place(first)
        copy = ordinal, begin, int(pool.chunks.word_chars[end - 1, 1])
        # a copy that goes on makes passages with the one before
        if self.copied and self.copied[-1][::2] == (ordinal, begin):
            copy = ordinal, self.copied.pop()[1], copy[2]
            chars = pool.chunks.word_chars[int(pool.run_starts[first]) : first, 0]
            first -= min(TWIN_WORDS - 1, int((chars >= copy[1]).sum()))
        passages = set(_hash_passages(pool.chunks.word_hashes[first:end]).tolist())
        self.copied.append(copy)
        self.passages |= passages
        if self._is_copied is None:
            self._is_copied = np.zeros(pool.num_words, dtype=bool)
        self._mark_copies(pool, [copy], passages)
        self._join()

    def add_text(self, pool: Pool, written: str) -> None:
        """Allow the names that the text has, now that more was written."""
        begun = self.text.rfind(" ") + 1  # a word that was begun before may be whole now
        self.text += written
        if pool.names is None or self._is_foreign is None:
            return
        new = [pool.names.words_of.get(name) for name in set(_WORD.findall(self.text[begun:]))]
        if any(words is not None for words in new):
            self._is_foreign[np.concatenate([words for words in new if words is not None])] = False
            self._join()

    def _join(self) -> None:
        if self._is_copied is None or self._is_foreign is None:
            self.mask = self._is_foreign if self._is_copied is None else self._is_copied
        else:
            self.mask = self._is_copied | self._is_foreign

    def _mark_copies(
        self, pool: Pool, copies: list[tuple[int, int, int]], passages: set[int]
    ) -> None:
        mask, chunks = self._is_copied, pool.chunks
        assert mask is not None
        for ordinal, begin, end in copies:
            for chunk in np.flatnonzero(chunks.document_ordinals == ordinal).tolist():
                words = slice(chunks.word_offsets[chunk], chunks.word_offsets[chunk + 1])
                chars = chunks.word_chars[words]
                mask[words] |= (chars[:, 0] < end) & (chars[:, 1] > begin)
        if passages:
            wanted = np.array(sorted(passages), dtype=np.uint64)
            for start in np.flatnonzero(np.isin(_hash_passages(chunks.word_hashes), wanted)):
                mask[start : start + TWIN_WORDS] = True


def _hash_passages(word_hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    # a hash of every TWIN_WORDS words that follow each other; of passages across two runs too,
    # which nothing is equal to
    count = max(0, len(word_hashes) - TWIN_WORDS + 1)
    mixed = word_hashes * HASH_BASE ^ (word_hashes >> np.uint64(31))
    hashes = np.zeros(count, dtype=np.uint64)
    for k in range(TWIN_WORDS):
        hashes = hashes * HASH_BASE + mixed[k : k + count]
    return hashes
