"""Matches in the nearest chunks: the paper's approximation of a search of the whole corpus.

Words and the nearest chunks of each chunk go in, the length of the longest phrase at each word
comes out.
"""

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from cog.index.read.reader import PhraseIndex
from cog.model.words import CAN_END
from cog.training.segmentation.corpus_words import CorpusWords
from cog.training.segmentation.grams import expand_ranges
from cog.training.segmentation.matches import iter_phrase_levels

SEARCH_CHUNKS = 128  # chunks whose neighbours are searched together


def iter_neighbours(
    index: PhraseIndex, chunk_documents: NDArray[np.int32], *, top_k: int
) -> Iterator[NDArray[np.int64]]:
    """Search the chunks of other documents nearest to each chunk by the retriever.

    The index has one part, whose chunk vectors are both what is looked for and what is found.
    Gives, chunk by chunk, the nearest ones, best first. Differs from the authors' code: the chunk's
    whole document is left out, not the chunk alone.
    """
    document_sizes = np.bincount(chunk_documents)[chunk_documents]
    num_done = 0
    for vectors in index.parts[0].iter_vectors():
        for first in range(0, len(vectors), SEARCH_CHUNKS):
            block = vectors[first : first + SEARCH_CHUNKS]
            own = np.arange(num_done, num_done + len(block))
            # as many more as the largest document has, since its own are left out
            nearest = index.search_chunks(block, top_k=top_k + int(document_sizes[own].max())).rows
            is_other = chunk_documents[nearest] != chunk_documents[own][:, np.newaxis]
            for row, mask in zip(nearest, is_other, strict=True):
                yield row[mask][:top_k]
            num_done += len(block)


def find_in_neighbours(
    words: CorpusWords,
    neighbours: Iterable[NDArray[np.int64]],
    *,
    min_words: int,
    max_words: int,
) -> NDArray[np.uint8]:
    """Find the longest phrase at each word that the nearest runs hold (CoG, appendix B).

    A run is a chunk; its neighbours are runs of other documents. Gives numbers of words, 0 for no
    phrase. *Shape:* ``(num_words,)``
    """
    lengths = np.zeros(words.num_words, dtype=np.uint8)
    finder = _Finder(words, min_words=min_words, max_words=max_words)
    for run, near in enumerate(neighbours):
        finder.match_run(run, near, lengths)
    return lengths


class _Finder:
    # Every run of 2, 3, … words that two documents hold has a number, its gram. What a chunk and
    # its neighbours share is found by marking the grams of one in a table and looking up those of
    # the other; only words that begin a shared run of n words are looked at for n + 1.

    def __init__(self, words: CorpusWords, *, min_words: int, max_words: int) -> None:
        self._min_words = min_words
        self._can_end = (words.flags & CAN_END) != 0
        grams, self._tables = [], []
        for level in iter_phrase_levels(words, max_words=max_words):
            numbers = np.full(words.num_words, -1, dtype=np.int32)
            numbers[level.firsts] = level.grams
            grams.append(numbers)
            # one slot more, the last, for -1: where no run begins nothing is marked
            self._tables.append(np.zeros(level.num_grams + 1, dtype=bool))
        begins = np.flatnonzero(grams[0] >= 0) if grams else np.zeros(0, dtype=np.int64)
        self._begins = begins.astype(np.int32)  # words at which any run begins
        self._grams = [numbers[begins] for numbers in grams]
        self._offsets = np.searchsorted(begins, words.run_offsets)  # of runs, in `begins`
        self._sizes = np.diff(self._offsets)

    def match_run(self, run: int, near: NDArray[np.int64], lengths: NDArray[np.uint8]) -> None:
        own = np.arange(self._offsets[run], self._offsets[run + 1])
        others = expand_ranges(self._offsets[near], self._sizes[near])
        levels = zip(self._grams, self._tables, strict=True)
        for num_words, (grams, is_marked) in enumerate(levels, start=2):
            if not len(own) or not len(others):
                return
            is_marked[grams[own]] = True
            is_marked[-1] = False
            others = others[is_marked[grams[others]]]
            is_marked[grams[own]] = False
            is_marked[grams[others]] = True
            own = own[is_marked[grams[own]]]
            is_marked[grams[others]] = False
            if num_words >= self._min_words:
                firsts = self._begins[own]
                lengths[firsts[self._can_end[firsts + (num_words - 1)]]] = num_words
