"""Matches in the nearest chunks: the paper's approximation of a search of the whole corpus.

Words and the nearest chunks of each chunk go in, the longest phrase at each word comes out.
"""

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from cog.index.reader import PhraseIndex
from cog.model.words import CAN_END
from cog.training.segmentation.corpus_words import CorpusWords
from cog.training.segmentation.grams import expand_ranges
from cog.training.segmentation.matches import Matches, iter_phrase_levels

SEARCH_CHUNKS = 128  # chunks whose neighbours are searched together


def iter_neighbours(
    index: PhraseIndex, chunk_documents: NDArray[np.int32], *, top_k: int
) -> Iterator[NDArray[np.int64]]:
    """Search the chunks of other documents nearest to each chunk by the retriever.

    Differs from the authors' code: the chunk's whole document is left out, not the chunk alone.

    :param index: The index; its chunk vectors are both what is looked for and what is found.
    :param chunk_documents: Document of each chunk. *Shape:* ``(num_chunks,)``
    :param top_k: Number of chunks, at most.
    :yields: Per chunk, the nearest chunks, best first. *Shape:* ``(num_neighbours,)``
    """
    chunks_of = np.bincount(chunk_documents)[chunk_documents]
    done = 0
    for vectors in index.iter_vectors():
        for first in range(0, len(vectors), SEARCH_CHUNKS):
            block = vectors[first : first + SEARCH_CHUNKS]
            own = np.arange(done, done + len(block))
            found = index.search_chunks(block, top_k=top_k + int(chunks_of[own].max()))
            is_other = chunk_documents[found] != chunk_documents[own][:, np.newaxis]
            for row, mask in zip(found, is_other, strict=True):
                yield row[mask][:top_k]
            done += len(block)


def find_in_neighbours(
    words: CorpusWords,
    neighbours: Iterable[NDArray[np.int64]],
    *,
    min_words: int,
    max_words: int,
) -> Matches:
    """Find the longest phrase at each word that the nearest runs hold (CoG, appendix B).

    Of several sources the one in the nearest run is taken.

    :param words: The words; a run is a chunk.
    :param neighbours: Per run, other runs, best first, none of its document.
    :param min_words: Number of words of a phrase, at least.
    :param max_words: Number of words of a phrase, at most.
    :returns: The matches.
    """
    matches = Matches.empty(words.num_words)
    finder = _Finder(words, min_words=min_words, max_words=max_words)
    for run, near in enumerate(neighbours):
        finder.match_run(run, near, matches)
    return matches


class _Finder:
    # Every run of 2, 3, … words that two documents hold has a number. The numbers in a chunk are
    # marked in a table; one look-up per word of the neighbours then finds what they share.

    def __init__(self, words: CorpusWords, *, min_words: int, max_words: int) -> None:
        self._min_words = min_words
        self._can_end = (words.flags & CAN_END) != 0
        grams, self._tables = [], []
        for level in iter_phrase_levels(
            words, documents=words.word_documents(), max_words=max_words
        ):
            numbers = np.full(words.num_words, -1, dtype=np.int32)
            numbers[level.firsts] = level.grams
            grams.append(numbers)
            # slot -1, where no run begins, stays 0
            self._tables.append(np.zeros(level.num_grams + 1, dtype=np.int16))
        held = np.flatnonzero(grams[0] >= 0) if grams else np.zeros(0, dtype=np.int64)
        self._held = held.astype(np.int32)
        self._grams = [numbers[held] for numbers in grams]
        self._offsets = np.searchsorted(held, words.run_offsets)
        self._sizes = np.diff(self._offsets)

    def match_run(self, run: int, near: NDArray[np.int64], matches: Matches) -> None:
        own = np.arange(self._offsets[run], self._offsets[run + 1])
        if not len(own):
            return
        hits = expand_ranges(self._offsets[near], self._sizes[near])  # numbers in `held`
        marks = np.arange(1, len(own) + 1, dtype=np.int16)
        for step, (grams, table) in enumerate(zip(self._grams, self._tables, strict=True)):
            table[grams[own]] = marks[: len(own)]
            table[-1] = 0
            found = table[grams[hits]]
            keep = np.flatnonzero(found)
            hits, found = hits[keep], found[keep]
            if len(hits) and step + 2 >= self._min_words:
                self._take(own, hits, found, table[grams[own]], step + 2, matches)
            table[grams[own]] = 0
            if not len(hits):
                return
            own = own[grams[own] >= 0]

    def _take(
        self,
        own: NDArray[np.int64],
        hits: NDArray[np.int64],
        found: NDArray[np.int16],
        marks: NDArray[np.int16],
        num_words: int,
        matches: Matches,
    ) -> None:
        source = np.full(len(own) + 2, -1, dtype=np.int64)
        source[found[::-1]] = hits[::-1]  # the best comes last and stays
        source[0] = -1
        is_found = source[marks] >= 0
        firsts = self._held[own[is_found]]
        is_phrase = self._can_end[firsts + (num_words - 1)]
        matches.lengths[firsts[is_phrase]] = num_words
        matches.sources[firsts[is_phrase]] = self._held[source[marks[is_found]][is_phrase]]
