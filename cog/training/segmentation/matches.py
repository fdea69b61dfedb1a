"""Matches: the words of a corpus go in, the longest phrase to copy at each word comes out.

Here against every other document, exactly. At each number of words the runs of equal text lie side
by side (``iter_levels``), so a level costs one sort of what is left, and no hash is relied on. A
suffix array (pydivsufsort) took as long and held more memory, since it cannot drop runs that no
phrase may begin or that only one document holds.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cog.model.words import BARRED, CAN_END, CAN_START
from cog.training.segmentation.corpus_words import CorpusWords
from cog.training.segmentation.grams import GramLevel, iter_levels
from cog.training.segmentation.spans import find_stops


@dataclass(frozen=True, slots=True)
class Matches:
    """The longest phrase at each word that can be copied from elsewhere.

    :param lengths: Its number of words; 0 for none. *Shape:* ``(num_words,)`` uint8
    :param sources: The word at which it begins elsewhere; of no meaning where there is none.
        *Shape:* ``(num_words,)`` int32
    """

    lengths: NDArray[np.uint8]
    sources: NDArray[np.int32]

    @classmethod
    def empty(cls, num_words: int) -> "Matches":
        """No match yet.

        :param num_words: Number of words.
        :returns: Matches to be filled in.
        """
        return cls(np.zeros(num_words, dtype=np.uint8), np.zeros(num_words, dtype=np.int32))


def find_in_corpus(words: CorpusWords, *, min_words: int, max_words: int) -> Matches:
    """Find the longest phrase at each word that another document holds, exactly.

    A phrase must be admissible where it is written and where it is copied. Of several sources the
    first in the corpus is taken.

    :param words: The words.
    :param min_words: Number of words of a phrase, at least.
    :param max_words: Number of words of a phrase, at most.
    :returns: The matches.
    """
    matches = Matches.empty(words.num_words)
    documents = words.word_documents()
    for level in iter_phrase_levels(words, documents=documents, max_words=max_words):
        if level.num_words >= min_words:
            _take_level(level, words.flags, documents, matches)
    return matches


def iter_phrase_levels(
    words: CorpusWords, *, documents: NDArray[np.int32], max_words: int
) -> Iterator[GramLevel]:
    """Group the runs that phrases may be part of by their text.

    :param words: The words.
    :param documents: Document of each word. *Shape:* ``(num_words,)``
    :param max_words: Number of words of a run, at most.
    :returns: Levels from 2 words on; a run may still end with a word that no phrase ends with.
    """
    can_start = (words.flags & (CAN_START | BARRED)) == CAN_START
    return iter_levels(
        words.numbers,
        find_stops(words.flags, words.run_ends()),
        documents,
        min_words=2,
        max_words=max_words,
        firsts=np.flatnonzero(can_start).astype(np.int32),
    )


def _take_level(
    level: GramLevel,
    flags: NDArray[np.uint8],
    documents: NDArray[np.int32],
    matches: Matches,
) -> None:
    is_phrase = (flags[level.firsts + (level.num_words - 1)] & CAN_END) != 0
    firsts, grams = level.firsts[is_phrase], level.grams[is_phrase]
    starts = np.flatnonzero(np.diff(grams, prepend=-1))
    sizes = np.diff(starts, append=len(grams))
    holders = documents[firsts]
    # the first source of each text, and the first of another document than that
    is_first = holders == np.repeat(holders[starts], sizes)
    num_first = np.add.reduceat(is_first, starts, dtype=np.int64) if len(starts) else sizes
    has_two = num_first < sizes
    second = starts + np.where(has_two, num_first, 0)
    source = np.where(is_first, np.repeat(second, sizes), np.repeat(starts, sizes))
    is_found = np.repeat(has_two, sizes)
    found = firsts[is_found]
    matches.lengths[found] = level.num_words
    matches.sources[found] = firsts[source[is_found]]
