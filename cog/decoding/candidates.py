"""Candidates of a prompt.

Gathered words go in, every admissible phrase, grouped by its surface text, comes out.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cog.index.records import GatheredChunks
from cog.model.words import BARRED, CAN_END, CAN_START

HASH_BASE = np.uint64(0x9E3779B97F4A7C15)  # odd, so that multiplication loses nothing


@dataclass(frozen=True, slots=True)
class Phrases:
    """Every admissible phrase of some chunks, occurrences of one text side by side.

    Texts that occur more than once come first. No phrase is materialised: two word numbers stand
    for it.

    :param first: First word of each phrase. *Shape:* ``(num_phrases,)`` int32
    :param last: Last word of each phrase. *Shape:* ``(num_phrases,)`` int32
    :param repeated_text: Text number of each phrase whose text occurs more than once. *Shape:*
        ``(num_repeated,)`` int64
    :param num_repeated_texts: Number of texts that occur more than once.
    :param num_texts: Number of different texts; text ``num_repeated_texts + i`` is phrase
        ``num_repeated + i``.
    """

    first: NDArray[np.int32]
    last: NDArray[np.int32]
    repeated_text: NDArray[np.int64]
    num_repeated_texts: int
    num_texts: int

    @property
    def num_repeated(self) -> int:
        """Number of phrases whose text occurs more than once.

        :returns: The count.
        """
        return len(self.repeated_text)

    def occurrences(self, text: int) -> NDArray[np.int64]:
        """The phrases that have a text.

        :param text: Number of the text.
        :returns: Numbers of its phrases.
        """
        if text >= self.num_repeated_texts:
            return np.array([text - self.num_repeated_texts + self.num_repeated])
        low = np.searchsorted(self.repeated_text, text, side="left")
        high = np.searchsorted(self.repeated_text, text, side="right")
        return np.arange(low, high)


@dataclass(frozen=True, slots=True)
class PhraseList:
    """Every admissible phrase of some chunks, not yet grouped by text.

    Two phrases have the same text if their keys are the same; a false match among a million
    phrases has a chance of about ``3e-8``.

    :param first: First word of each phrase. *Shape:* ``(num_phrases,)`` int32
    :param last: Last word of each phrase. *Shape:* ``(num_phrases,)`` int32
    :param keys: Hash of the text of each phrase. *Shape:* ``(num_phrases,)`` uint64
    """

    first: NDArray[np.int32]
    last: NDArray[np.int32]
    keys: NDArray[np.uint64]


def find_phrases(chunks: GatheredChunks, *, min_words: int, max_words: int) -> Phrases:
    """Find the admissible phrases of chunks, grouped by text.

    :param chunks: The gathered words.
    :param min_words: Number of words of a phrase, at least.
    :param max_words: Number of words of a phrase, at most.
    :returns: The phrases.
    """
    return group_phrases(list_phrases(chunks, min_words=min_words, max_words=max_words))


def list_phrases(chunks: GatheredChunks, *, min_words: int, max_words: int) -> PhraseList:
    """List the admissible phrases of chunks.

    A phrase lies in one chunk, holds no barred word, and begins and ends with words that may.

    :param chunks: The gathered words.
    :param min_words: Number of words of a phrase, at least.
    :param max_words: Number of words of a phrase, at most.
    :returns: The phrases.
    """
    flags = chunks.word_flags
    starts = np.flatnonzero(((flags & CAN_START) != 0) & ((flags & BARRED) == 0))
    stops = _next_stop(chunks)[starts]
    ends_phrase = (flags & CAN_END) != 0
    hashes = chunks.word_hashes * HASH_BASE ^ (chunks.word_hashes >> np.uint64(29))
    keys = np.zeros(len(starts), dtype=np.uint64)
    found: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint64]]] = []
    for num_words in range(1, max_words + 1):
        last = starts + num_words - 1
        inside = last < stops
        starts, stops, last = starts[inside], stops[inside], last[inside]
        keys = keys[inside] * HASH_BASE + hashes[last]
        if num_words >= min_words:
            ends = ends_phrase[last]
            found.append((starts[ends], last[ends], keys[ends]))
    if not found:
        found.append((starts[:0], starts[:0], keys[:0]))
    first, last, all_keys = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return PhraseList(first.astype(np.int32), last.astype(np.int32), all_keys)


def _next_stop(chunks: GatheredChunks) -> NDArray[np.int64]:
    # for each word, the first word at or after it that no phrase from here may hold: barred, or of
    # the next chunk
    num_words = len(chunks.word_flags)
    is_stop = np.zeros(num_words + 1, dtype=bool)
    is_stop[:num_words] = (chunks.word_flags & BARRED) != 0
    barred_stop = np.where(is_stop, np.arange(num_words + 1), num_words)
    barred_stop = np.minimum.accumulate(barred_stop[::-1])[::-1][:num_words]
    chunk_end = np.repeat(chunks.word_offsets[1:], np.diff(chunks.word_offsets))
    return np.minimum(barred_stop, chunk_end)


def group_phrases(listed: PhraseList) -> Phrases:
    """Put phrases of the same text side by side.

    :param listed: The phrases.
    :returns: The same in another order, which depends on their texts alone.
    """
    order = np.argsort(listed.keys)
    keys = listed.keys[order]
    changes = np.ones(len(keys), dtype=bool)
    changes[1:] = keys[1:] != keys[:-1]
    is_single = changes.copy()
    is_single[:-1] &= changes[1:]  # a text of its own, followed by another text
    repeated, single = order[~is_single], order[is_single]
    repeated_text = np.cumsum(changes[~is_single]) - 1
    num_repeated_texts = int(repeated_text[-1]) + 1 if len(repeated_text) else 0
    order = np.concatenate([repeated, single])
    return Phrases(
        listed.first[order],
        listed.last[order],
        repeated_text,
        num_repeated_texts,
        num_repeated_texts + len(single),
    )
