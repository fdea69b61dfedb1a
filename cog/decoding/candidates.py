"""Candidates of a prompt.

Gathered words go in, every admissible phrase, grouped by its surface text, comes out.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cog.index.records import GatheredChunks
from cog.model.words import BARRED, CAN_END, CAN_START

HASH_BASE = np.uint64(0x9E3779B97F4A7C15)  # odd, so that multiplication loses nothing


@dataclass(frozen=True, slots=True)
class Phrases:
    """Every admissible phrase of some chunks, occurrences of one text side by side.

    Texts that occur more than once come first. No phrase is materialised: where it begins and
    where it ends among the words that may, two numbers, stand for it.

    :param begin_words: Words that begin a phrase, ascending. *Shape:* ``(num_begins,)`` int64
    :param end_words: Words that end a phrase, ascending. *Shape:* ``(num_ends,)`` int64
    :param first: Of each phrase, position of its first word in ``begin_words``. *Shape:*
        ``(num_phrases,)`` int32
    :param last: Of each phrase, position of its last word in ``end_words``. *Shape:*
        ``(num_phrases,)`` int32
    :param repeated_bounds: Of each text that occurs more than once, its first phrase; and one past
        the last phrase of the last. *Shape:* ``(num_repeated_texts + 1,)`` int64
    :param num_repeated: Number of phrases whose text occurs more than once.
    """

    begin_words: Tensor
    end_words: Tensor
    first: Tensor
    last: Tensor
    repeated_bounds: Tensor
    num_repeated: int

    def __len__(self) -> int:
        return len(self.first)

    @property
    def num_repeated_texts(self) -> int:
        """Number of texts that occur more than once."""
        return len(self.repeated_bounds) - 1

    @property
    def num_texts(self) -> int:
        """Number of different texts.

        Text ``num_repeated_texts + i`` is phrase ``num_repeated + i``.
        """
        return self.num_repeated_texts + len(self) - self.num_repeated

    def occurrences(self, text: int) -> range:
        """The phrases that have a text."""
        if text >= self.num_repeated_texts:
            only = text - self.num_repeated_texts + self.num_repeated
            return range(only, only + 1)
        return range(*self.repeated_bounds[text : text + 2].tolist())

    def span(self, phrase: int) -> tuple[int, int]:
        """First and last word of a phrase."""
        return (
            int(self.begin_words[self.first[phrase]]),
            int(self.end_words[self.last[phrase]]),
        )

    def score(self, start_scores: Tensor, end_scores: Tensor) -> Tensor:
        """Score every phrase: ``q_start · S[first] + q_end · E[last]`` (CoG, eq. 1 and 2).

        The paper's phrase table is never built: scores of the words that begin, *shape*
        ``(num_begins,)``, and that end, ``(num_ends,)``, are added. *Shape:* ``(num_phrases,)``
        """
        scores = start_scores.index_select(0, self.first)
        return scores.add_(end_scores.index_select(0, self.last))

    def find_open(self, scores: Tensor) -> Tensor:
        """Find the words that begin a phrase of a score, those of minus infinity being left out.

        *Shape:* ``(num_begins,)`` bool
        """
        is_open = torch.zeros(len(self.begin_words), dtype=torch.bool, device=scores.device)
        is_open[self.first[scores > -torch.inf]] = True
        return is_open


def find_phrases(
    chunks: GatheredChunks,
    *,
    min_words: int,
    max_words: int,
    word_bits: NDArray[np.float32] | None = None,
    min_bits: float = 0.0,
    is_summed: bool = True,
    device: torch.device | None = None,
) -> Phrases:
    """Find the admissible phrases of chunks, grouped by text.

    A phrase lies in one chunk, holds no barred word, begins and ends with words that may, and has
    ``min_bits`` of information, the sum of ``word_bits``, *shape* ``(num_words,)``. Two phrases
    have the same text if hashes of their words say so; a false match among a million phrases has a
    chance of about ``3e-8``. If ``is_summed`` is not set, each counts as a text of its own. Their
    order depends on their texts and places alone.
    """
    bits = word_bits if word_bits is not None else np.zeros(len(chunks.word_flags))
    firsts, lasts, keys = _list_spans(
        chunks, bits, min_words=min_words, max_words=max_words, min_bits=min_bits
    )
    order, bounds = _group(keys)
    if not is_summed:
        order, bounds = np.arange(len(keys)), np.zeros(1, dtype=np.int64)
    num_words = len(chunks.word_flags)
    begin_words, first = number_places(torch.from_numpy(firsts[order]).to(device), num_words)
    end_words, last = number_places(torch.from_numpy(lasts[order]).to(device), num_words)
    placed_bounds = torch.from_numpy(bounds).to(device)
    return Phrases(begin_words, end_words, first, last, placed_bounds, int(bounds[-1]))


def number_places(places: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Find the different ones of some places below a count, ascending, and each one's number.

    ``torch.unique`` with its inverse, without sorting. *Shape:* ``(num_places,)`` to
    ``(num_different,)`` int64 and ``(num_places,)`` int32
    """
    is_there = torch.zeros(count, dtype=torch.bool, device=places.device)
    is_there[places] = True
    numbers = is_there.cumsum(0, dtype=torch.int32) - 1
    return is_there.nonzero().squeeze(1), numbers.index_select(0, places)


def _list_spans(
    chunks: GatheredChunks,
    word_bits: NDArray[np.floating],
    *,
    min_words: int,
    max_words: int,
    min_bits: float,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint64]]:
    # first and last word of every admissible phrase, and a hash of its text
    flags = chunks.word_flags
    starts = np.flatnonzero(((flags & CAN_START) != 0) & ((flags & BARRED) == 0))
    stops = _next_stop(chunks)[starts]
    ends_phrase = (flags & CAN_END) != 0
    bits_before = np.concatenate([[0.0], np.cumsum(word_bits, dtype=np.float64)])
    hashes = chunks.word_hashes * HASH_BASE ^ (chunks.word_hashes >> np.uint64(29))
    keys = np.zeros(len(starts), dtype=np.uint64)
    nothing = np.zeros(0, dtype=np.int64)
    found = [(nothing, nothing, np.zeros(0, dtype=np.uint64))]
    for num_words in range(1, max_words + 1):
        last = starts + num_words - 1
        inside = last < stops
        starts, stops, last = starts[inside], stops[inside], last[inside]
        keys = keys[inside] * HASH_BASE + hashes[last]
        if num_words >= min_words:
            kept = ends_phrase[last] & (bits_before[last + 1] - bits_before[starts] >= min_bits)
            found.append((starts[kept], last[kept], keys[kept]))
    firsts, lasts, all_keys = zip(*found, strict=True)
    return np.concatenate(firsts), np.concatenate(lasts), np.concatenate(all_keys)


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


def _group(keys: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    # an order with phrases of one text side by side, repeated texts first, and where each of these
    # begins; stable, so that of equal scores every machine cites the same place
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    changes = np.ones(len(keys), dtype=bool)
    changes[1:] = keys[1:] != keys[:-1]
    is_single = changes.copy()
    is_single[:-1] &= changes[1:]  # a text of its own, followed by another text
    begins = np.flatnonzero(changes[~is_single])
    bounds = np.append(begins, np.count_nonzero(~is_single)).astype(np.int64)
    return np.concatenate([order[~is_single], order[is_single]]), bounds
