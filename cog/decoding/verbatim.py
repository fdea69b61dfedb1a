"""Limit of verbatim runs: the text so far goes in, phrases that would make a run too long go out.

A run is what the text and one place of a document have in common, word by word, from the beginning
of a copy on: copies that follow each other in the document count as one, and so does what was
written between them if the document says the same. (This is not in the paper.)
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cog.decoding.pool import Pool
from cog.decoding.text import GrowingText
from cog.model.words import WordSplitter

TextOf = Callable[[int], str]

CHARS_PER_WORD = 64  # a run is followed back this far; longer words only end the search earlier
MAX_TEXTS = 256  # documents kept in memory


@dataclass(frozen=True, slots=True)
class Run:
    """A place of a document that the text follows.

    :param document_ordinal: Position of the document in the index.
    :param start: First character of the run in the document.
    :param end: One past its last character: where a copy would go on.
    """

    document_ordinal: int
    start: int
    end: int


def find_runs(text: GrowingText, text_of: TextOf, *, max_chars: int) -> list[Run]:
    """Find the places that the text follows at its end.

    :param text: The text so far.
    :param text_of: Gives the text of a document by its position in the index.
    :param max_chars: How far to look back.
    :returns: Runs, each as long as it is; at most one per place.
    """
    starts: dict[tuple[int, int], int] = {}
    suffix = ""
    for segment, copy in zip(reversed(text.segments), reversed(text.copies), strict=True):
        suffix = segment.text + suffix
        if copy is not None:
            end = copy.char_start + len(suffix)
            if text_of(copy.document_ordinal)[copy.char_start : end] == suffix:
                starts[copy.document_ordinal, end] = copy.char_start
        if len(suffix) > max_chars:
            break
    return [Run(ordinal, start, end) for (ordinal, end), start in starts.items()]


class VerbatimLimit:
    """Leaves out phrases that would make a verbatim run longer than allowed.

    :param splitter: Counts words.
    :param text_of: Gives the text of a document by its position in the index.
    """

    def __init__(self, splitter: WordSplitter, text_of: TextOf) -> None:
        self._splitter = splitter
        self._read = text_of
        self._texts: dict[int, str] = {}

    def mask(self, scores: Tensor, text: GrowingText, pool: Pool, *, max_words: int) -> Tensor:
        """Leave out phrases that are too long, or would make a run too long.

        :param scores: Phrase scores. *Shape:* ``(num_phrases,)``
        :param text: The text so far.
        :param pool: The phrases.
        :param max_words: Number of words of a run, at most.
        :returns: The scores, with minus infinity where a phrase is left out.
        """
        phrases = pool.phrases
        num_words = phrases.last - phrases.first + 1  # (num_phrases,)
        scores = scores.masked_fill(num_words > max_words, -torch.inf)
        for run in find_runs(text, self._text_of, max_chars=CHARS_PER_WORD * (max_words + 1)):
            copied = self._text_of(run.document_ordinal)[run.start : run.end]
            num_left = max_words - self._splitter.split(copied).num_words
            word = _find_word(pool, run)
            if word is not None:
                is_too_long = (phrases.first == word) & (num_words > num_left)
                scores = scores.masked_fill(is_too_long, -torch.inf)
        return scores

    def _text_of(self, ordinal: int) -> str:
        if len(self._texts) >= MAX_TEXTS:
            self._texts.clear()
        if ordinal not in self._texts:
            self._texts[ordinal] = self._read(ordinal)
        return self._texts[ordinal]


def _find_word(pool: Pool, run: Run) -> int | None:
    # the gathered word with which a copy would go on
    chunks = pool.chunks
    for chunk in np.flatnonzero(chunks.document_ordinals == run.document_ordinal).tolist():
        first, last = chunks.word_offsets[chunk], chunks.word_offsets[chunk + 1]
        starts = chunks.word_chars[first:last, 0]
        found = int(np.searchsorted(starts, run.end))
        if found < len(starts) and starts[found] == run.end:
            return int(first) + found
    return None
