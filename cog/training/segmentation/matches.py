"""Matches: the words of a corpus go in, the length of the longest phrase to copy at each comes out.

Of every other document, exactly. At each number of words the runs of equal text lie side
by side (``iter_levels``), so a level costs one sort of what is left, and no hash is relied on. A
suffix array (pydivsufsort) took as long and held more memory, since it cannot drop runs that no
phrase may begin or that only one document holds.
"""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cog.index.chunking import MAX_BLOCK_CHARS, iter_blocks
from cog.model.words import BARRED, CAN_END, CAN_START, UNKNOWN, WordSplitter, flag_words
from cog.progress import Progress
from cog.training.segmentation.grams import find_stops, iter_levels


@dataclass(frozen=True, slots=True)
class CorpusWords:
    """The words of all documents side by side; about 10 bytes a word."""

    num_documents: int
    # (num_words,) number of each word: two have the same if and only if they have the same text
    numbers: NDArray[np.int32]
    flags: NDArray[np.uint8]  # (num_words,) bits of `cog.model.words`
    # (num_runs + 1,) a phrase lies in one run, a block of a document: run `i` is words
    # `[run_offsets[i], run_offsets[i + 1])`
    run_offsets: NDArray[np.int64]
    run_documents: NDArray[np.int32]  # (num_runs,) document of each run, ascending

    @property
    def num_words(self) -> int:
        """Number of words."""
        return len(self.numbers)

    def run_ends(self) -> NDArray[np.int32]:
        """For each word, one past the last word of its run."""
        return np.repeat(self.run_offsets[1:].astype(np.int32), np.diff(self.run_offsets))

    def word_documents(self) -> NDArray[np.int32]:
        """The document of each word, ascending."""
        return np.repeat(self.run_documents, np.diff(self.run_offsets))


def collect_texts(
    texts: Iterable[str], *, splitter: WordSplitter, progress: Progress
) -> CorpusWords:
    """Split the texts of documents into words; a run is a block of a document."""
    known: dict[str, int] = {}
    numbers: list[NDArray[np.int32]] = []
    flags: list[NDArray[np.uint8] | None] = []  # None: by the words' texts
    run_documents: list[int] = []
    num_documents = 0
    for document, text in enumerate(texts):
        for start, end in iter_blocks(text, max_chars=MAX_BLOCK_CHARS):
            block = text[start:end]
            bounds = splitter.split(block).word_chars
            words = itertools.pairwise(bounds.tolist())
            own = [known.setdefault(block[first:last], len(known)) for first, last in words]
            numbers.append(np.array(own, dtype=np.int32))
            # `<unk>` reaches over several words, whose own texts do not tell
            flags.append(flag_words(block, bounds) if UNKNOWN.search(block) else None)
            run_documents.append(document)
        num_documents = document + 1
        progress.advance(1)
    table = _flag_vocabulary(list(known))
    all_flags = [
        table[run] if own_flags is None else own_flags
        for run, own_flags in zip(numbers, flags, strict=True)
    ]
    sizes = [len(run) for run in numbers]
    return CorpusWords(
        num_documents=num_documents,
        numbers=np.concatenate([np.zeros(0, dtype=np.int32), *numbers]),
        flags=np.concatenate([np.zeros(0, dtype=np.uint8), *all_flags]),
        run_offsets=np.append(0, np.cumsum(sizes, dtype=np.int64)),
        run_documents=np.array(run_documents, dtype=np.int32),
    )


def _flag_vocabulary(words: list[str]) -> NDArray[np.uint8]:
    # with a character between the words, so that none is judged by its neighbours
    sizes = np.array([len(word) for word in words], dtype=np.int32)
    ends = np.cumsum(sizes + 1, dtype=np.int32)
    bounds = np.stack([ends - sizes - 1, ends - 1], axis=1).reshape(-1)
    return flag_words("\0".join(words), bounds)[::2].copy()


def find_in_corpus(words: CorpusWords, *, min_words: int, max_words: int) -> NDArray[Any]:
    """Find the longest phrase at each word that another document holds, exactly.

    A phrase must be admissible where it is written and where it is copied. Gives numbers of words,
    0 for no phrase. *Shape:* ``(num_words,)``
    """
    lengths = np.zeros(words.num_words, dtype=np.min_scalar_type(max_words))
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
