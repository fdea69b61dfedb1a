"""Information: an index goes in; its most frequent words and its most and least telling phrases."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cog.index.digest import get_binary_buffers
from cog.index.reader import PhraseIndex
from cog.index.store import WORDS
from cog.index.word_counts import get_form
from cog.model.words import BARRED, CAN_END, CAN_START

COLUMNS = ("document_ordinal", "word_chars", "word_flags", "word_hashes")
PHRASE_WORDS = (2, 3, 4)
NUM_FREQUENT = 1000  # phrases that are ranked by information
MAX_WORDS = 1 << 20  # from the beginning of the index, so that memory is bounded
FACTOR = np.uint64(0x9E3779B97F4A7C15)  # odd, so that the order of words counts


@dataclass(frozen=True, slots=True)
class Phrase:
    """A word or a phrase.

    :param text: How it is written.
    :param count: How often it stands in the index; of a phrase, in what was read of it.
    :param bits: Its information, the sum of that of its words.
    """

    text: str
    count: int
    bits: float


@dataclass(frozen=True, slots=True)
class Information:
    """What an index holds much of.

    :param index: Digest of the index.
    :param num_words: Number of its words.
    :param num_read: Number of words from which phrases were taken.
    :param frequent_words: Its most frequent words, in lower case.
    :param most: Of the most frequent phrases of two to four words, those with the most bits.
    :param least: Those with the least.
    """

    index: str
    num_words: int
    num_read: int
    frequent_words: tuple[Phrase, ...]
    most: tuple[Phrase, ...]
    least: tuple[Phrase, ...]


@dataclass(frozen=True, slots=True)
class _Read:
    # words of the first chunks, one behind another; arrays have one item a word
    chunks: NDArray[np.int64]
    documents: NDArray[np.int64]
    chars: NDArray[np.int32]  # (num_words, 2)
    flags: NDArray[np.uint8]
    hashes: NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class _Spans:
    # phrases by a place where they stand
    firsts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    counts: NDArray[np.int64]


def measure_information(index: PhraseIndex, *, top_k: int = 10) -> Information:
    """Find the most frequent words of an index, and its most and least telling phrases.

    :param index: The index.
    :param top_k: How many of each.
    :returns: Words and phrases with counts and bits.
    """
    read = _read_words(index)
    before = np.append(0.0, np.cumsum(index.get_word_bits(read.hashes), dtype=np.float64))
    phrases = _find_frequent(read)
    bits = before[phrases.firsts + phrases.sizes] - before[phrases.firsts]
    order = np.argsort(bits, kind="stable")

    def describe(spans: _Spans, rows: Iterable[int]) -> tuple[Phrase, ...]:
        return tuple(_describe(index, read, spans, row, before) for row in rows)

    words = _find_words(index, read, top_k=top_k)
    return Information(
        index=index.manifest.digest,
        num_words=index.manifest.num_words,
        num_read=len(read.hashes),
        frequent_words=describe(words, range(len(words.firsts))),
        most=describe(phrases, _choose(phrases, order[::-1], top_k)),
        least=describe(phrases, _choose(phrases, order, top_k)),
    )


def _read_words(index: PhraseIndex) -> _Read:
    parts: list[tuple[NDArray[np.generic], ...]] = []
    num_words = num_chunks = 0
    for batch in index.iter_rows(WORDS, columns=COLUMNS):
        blobs = [get_binary_buffers(batch.column(name)) for name in COLUMNS[1:]]
        (offsets, chars), (_, flags), (_, hashes) = blobs
        counts = np.diff(offsets) // 4 - 1  # one bound more than words
        bounds = np.lib.stride_tricks.sliding_window_view(chars.view(np.int32), 2)
        # a pair of bounds that reaches from one chunk to the next is no word
        bounds = np.delete(bounds, (offsets[1:-1] // 4 - 1).astype(np.int64), axis=0)
        rows = np.repeat(np.arange(batch.num_rows), counts)
        documents = batch.column("document_ordinal").to_numpy()[rows]
        parts.append((rows + num_chunks, documents, bounds, flags, hashes.view(np.uint64)))
        num_words, num_chunks = num_words + len(rows), num_chunks + batch.num_rows
        if num_words >= MAX_WORDS:
            break
    arrays = [np.concatenate(each) for each in zip(*parts, strict=True)]
    return _Read(*arrays)


def _find_words(index: PhraseIndex, read: _Read, *, top_k: int) -> _Spans:
    counts = index.load_word_counts()
    words, firsts = np.unique(read.hashes, return_index=True)
    rows = np.searchsorted(counts.word_hashes, words)
    is_word = (read.flags[firsts] & CAN_START) > 0  # no marks
    firsts, rows = firsts[is_word], rows[is_word]
    _, chosen = np.unique(counts.form_hashes[rows], return_index=True)
    sums = counts.sum_forms()[rows][chosen]
    best = np.argsort(-sums, kind="stable")[:top_k]
    return _Spans(firsts[chosen][best], np.ones(len(best), dtype=np.int64), sums[best])


def _find_frequent(read: _Read) -> _Spans:
    is_barred = np.append(0, np.cumsum((read.flags & BARRED) > 0))
    keys, found = read.hashes.copy(), []
    for size in range(2, max(PHRASE_WORDS) + 1):
        firsts = np.arange(max(0, len(read.hashes) - size + 1))
        keys = keys[: len(firsts)] * FACTOR + read.hashes[size - 1 :]
        lasts = firsts + size - 1
        is_phrase = (
            (read.chunks[firsts] == read.chunks[lasts])
            & (is_barred[firsts] == is_barred[firsts + size])
            & ((read.flags[firsts] & CAN_START) > 0)
            & ((read.flags[lasts] & CAN_END) > 0)
        )
        _, chosen, counts = np.unique(keys[is_phrase], return_index=True, return_counts=True)
        if size in PHRASE_WORDS:
            firsts = firsts[is_phrase][chosen]
            found.append(np.stack([firsts, np.full(len(firsts), size), counts])[:, counts > 1])
    joined = np.concatenate(found, axis=1)
    best = np.argsort(-joined[2], kind="stable")[:NUM_FREQUENT]
    return _Spans(*joined[:, best])


def _choose(phrases: _Spans, order: NDArray[np.int64], top_k: int) -> list[int]:
    # of phrases that overlap where they stand first, the first in the order
    chosen: list[int] = []
    taken: set[int] = set()
    for row in order.tolist():
        words = range(phrases.firsts[row], phrases.firsts[row] + phrases.sizes[row])
        if len(chosen) < top_k and taken.isdisjoint(words):
            chosen.append(row)
            taken.update(words)
    return chosen


def _describe(
    index: PhraseIndex, read: _Read, spans: _Spans, row: int, before: NDArray[np.float64]
) -> Phrase:
    first, size = int(spans.firsts[row]), int(spans.sizes[row])
    document = int(read.documents[first])
    start, end = int(read.chars[first, 0]), int(read.chars[first + size - 1, 1])
    text = index.get_documents([document])[document].text[start:end].removeprefix(" ")
    return Phrase(
        text=get_form(text) if size == 1 else text,
        count=int(spans.counts[row]),
        bits=round(float(before[first + size] - before[first]), 2),
    )
