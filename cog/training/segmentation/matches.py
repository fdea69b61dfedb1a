"""Matches: the words of a corpus go in, the length of the longest phrase to copy at each comes out.

Of every other document, exactly. At each number of words the runs of equal text lie side
by side (``iter_levels``), so a level costs one sort of what is left, and no hash is relied on. A
suffix array (pydivsufsort) took as long and held more memory, since it cannot drop runs that no
phrase may begin or that only one document holds.
"""

import numpy as np
from numpy.typing import NDArray

from cog.model.words import BARRED, CAN_END, CAN_START
from cog.training.segmentation.corpus_words import CorpusWords
from cog.training.segmentation.grams import iter_levels
from cog.training.segmentation.spans import find_stops

BLOCK_WORDS = 1 << 18  # walked as a Python list, which takes many times their memory


def find_in_corpus(words: CorpusWords, *, min_words: int, max_words: int) -> NDArray[np.uint8]:
    """Find the longest phrase at each word that another document holds, exactly.

    A phrase must be admissible where it is written and where it is copied. Gives numbers of words,
    0 for no phrase. *Shape:* ``(num_words,)``
    """
    lengths = np.zeros(words.num_words, dtype=np.uint8)
    documents = words.word_documents()
    can_start = (words.flags & (CAN_START | BARRED)) == CAN_START
    levels = iter_levels(
        words.numbers,
        find_stops(words.flags, words.run_ends()),
        documents,
        min_words=2,
        max_words=max_words,
        firsts=np.flatnonzero(can_start).astype(np.int32),
    )
    for level in levels:
        if level.num_words < min_words:
            continue
        # a run may still end with a word that no phrase ends with
        can_end = (words.flags[level.firsts + (level.num_words - 1)] & CAN_END) != 0
        firsts, grams = level.firsts[can_end], level.grams[can_end]
        starts = np.flatnonzero(np.diff(grams, prepend=-1))
        sizes = np.diff(starts, append=len(grams))
        # the places of one text ascend, and so do their documents: the ends tell whether all agree
        is_shared = documents[firsts[starts]] != documents[firsts[starts + sizes - 1]]
        lengths[firsts[np.repeat(is_shared, sizes)]] = level.num_words
    return lengths


def walk_words(lengths: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Go through words from left to right: take the longest phrase, else one word (CoG, app. B).

    Given the number of words of the longest phrase at each word, 0 for none, gives the words at
    which a phrase is taken, ascending. Differs from the authors' code: where two words are not
    found, one is left and the other tried again.
    """
    word = 0
    phrases = [np.zeros(0, dtype=np.int64)]
    for first in range(0, len(lengths), BLOCK_WORDS):
        steps = np.maximum(lengths[first : first + BLOCK_WORDS], 1).tolist()
        visited = []
        while word < first + len(steps):  # the last phrase of a block may reach into the next
            visited.append(word)
            word += steps[word - first]
        starts = np.array(visited, dtype=np.int64)
        phrases.append(starts[lengths[starts] > 0])
    return np.concatenate(phrases)
