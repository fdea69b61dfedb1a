"""Forward maximum matching: the longest phrase at each word goes in, the segments come out."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cog.training.segmentation.corpus_words import CorpusWords
from cog.training.segmentation.grams import expand_ranges
from cog.training.segmentation.matches import Matches
from cog.training.segmentation.store import SegmentBlock

BLOCK_WORDS = 1 << 18  # words walked, checked and written together


@dataclass(frozen=True, slots=True)
class SegmentCounts:
    """Counts of phrases by their number of words.

    :param counts: Number of phrases of each number of words. *Shape:* ``(max_words + 1,)`` int64
    """

    counts: NDArray[np.int64]

    @classmethod
    def empty(cls, max_words: int) -> "SegmentCounts":
        """No phrase yet.

        :param max_words: Number of words of a phrase, at most.
        :returns: Counts to be added to.
        """
        return cls(np.zeros(max_words + 1, dtype=np.int64))

    def add(self, block: SegmentBlock) -> None:
        """Count the phrases of a block.

        :param block: The block.
        """
        np.add.at(self.counts, block.places[:, 2], 1)

    @property
    def num_phrases(self) -> int:
        """Number of phrases.

        :returns: The count.
        """
        return int(self.counts.sum())

    @property
    def copied_words(self) -> int:
        """Number of words that lie in phrases.

        :returns: The count.
        """
        return int(self.counts @ np.arange(len(self.counts)))

    @property
    def lengths(self) -> dict[str, int]:
        """Number of phrases by their number of words, from 2 on.

        :returns: Counts by number, as text.
        """
        return {str(number): int(self.counts[number]) for number in range(2, len(self.counts))}


def iter_segment_blocks(words: CorpusWords, matches: Matches) -> Iterator[SegmentBlock]:
    """Walk through all documents, and check every phrase against the slice it points to.

    :param words: The words.
    :param matches: The longest phrase at each of them.
    :yields: The segments, some documents at a time.
    """
    run_sizes = np.diff(words.run_offsets)
    counts = np.zeros(words.num_documents, dtype=np.int64)
    np.add.at(counts, words.run_documents, run_sizes)
    offsets = np.append(0, np.cumsum(counts))  # of documents, in words
    ids = pa.array(words.document_ids, pa.string())
    first = 0
    while first < words.num_documents:
        last = int(np.searchsorted(offsets, offsets[first] + BLOCK_WORDS, side="right")) - 1
        last = min(max(last, first + 1), words.num_documents)
        begin, end = int(offsets[first]), int(offsets[last])
        phrases = begin + walk_words(matches.lengths[begin:end])
        check_phrases(words, matches, phrases)
        lengths, sources = matches.lengths[phrases].astype(np.int32), matches.sources[phrases]
        source_runs = np.searchsorted(words.run_offsets, sources, side="right") - 1
        places = words.places
        yield SegmentBlock(
            document_ids=words.document_ids[first:last],
            num_words=counts[first:last].astype(np.int32),
            offsets=np.searchsorted(phrases, offsets[first : last + 1]).astype(np.int32),
            places=np.stack(
                [
                    places[phrases, 0],
                    places[phrases + lengths - 1, 1],
                    lengths,
                    places[sources, 0],
                    places[sources + lengths - 1, 1],
                ],
                axis=1,
            ),
            source_document_ids=ids.take(pa.array(words.run_documents[source_runs])),
        )
        first = last


def walk_words(lengths: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Go through words from left to right: take the longest phrase, else one word (CoG, app. B).

    Differs from the authors' code: where two words are not found, one is left and the other tried
    again.

    :param lengths: Number of words of the longest phrase at each word; 0 for none. No phrase
        reaches past the end. *Shape:* ``(num_words,)``
    :returns: The words at which a phrase is taken, ascending. *Shape:* ``(num_phrases,)``
    """
    steps = np.maximum(lengths, 1).tolist()
    num_words, word = len(steps), 0
    visited = []
    while word < num_words:
        visited.append(word)
        word += steps[word]
    starts = np.array(visited, dtype=np.int64)
    return starts[lengths[starts] > 0]


def check_phrases(words: CorpusWords, matches: Matches, firsts: NDArray[np.int64]) -> None:
    """Check that every phrase is equal to the slice it points to, in another document.

    :param words: The words.
    :param matches: The matches.
    :param firsts: First words of the phrases. *Shape:* ``(num_phrases,)``
    :raises AssertionError: If one is not; that would be a fault of the search.
    """
    lengths, sources = matches.lengths[firsts].astype(np.int64), matches.sources[firsts]
    sides = []
    for starts in (firsts, sources.astype(np.int64)):
        lasts = starts + lengths - 1
        runs = np.searchsorted(words.run_offsets, starts, side="right") - 1
        assert (lasts < words.run_offsets[runs + 1]).all(), "a phrase leaves its run"
        documents = words.run_documents[runs]
        begins = words.text_offsets[documents] + words.places[starts, 2]
        sides.append((documents, begins, words.places[lasts, 3] - words.places[starts, 2]))
    (left_documents, left, left_sizes), (right_documents, right, right_sizes) = sides
    assert (left_documents != right_documents).all(), "a phrase is copied from its own document"
    assert (left_sizes == right_sizes).all(), "a phrase is not as long as its source"
    raw = np.frombuffer(words.texts, dtype=np.uint8)
    is_same = raw[expand_ranges(left, left_sizes)] == raw[expand_ranges(right, left_sizes)]
    assert is_same.all(), "a phrase is not equal to its source"
