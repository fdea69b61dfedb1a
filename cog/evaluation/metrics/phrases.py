"""What was copied: cited generations go in, statistics of their copies come out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from cog.records import CORPUS, VOCABULARY, Generation, Segment

MAX_ORDER = 6  # lengths 1 to 6 are counted apart, as in the paper's table; longer ones together

CountTokens = Callable[[str], int]


@dataclass(frozen=True, slots=True)
class PhraseStatistics:
    """Lengths and sources of what decoding steps appended.

    :param share_by_length: Share of all segments by number of tokens, 1 to 6 (CoG, table 2).
    :param share_longer: Share of segments of more than 6 tokens.
    :param mean_length: Mean number of tokens of a copy; 0 if nothing was copied.
    :param mean_words: Mean number of its words.
    :param variance_of_length: Its variance.
    :param copied_tokens: Share of tokens that were copied.
    :param copied_steps: Share of segments that were copied.
    :param sources_per_text: Mean number of distinct documents copied from in a text.
    :param num_sources: Number of distinct documents copied from in all texts.
    :param longest_run: Most tokens copied from one place in one go, over adjacent copies that
        also lie side by side in their document.
    :param num_texts: Number of texts.
    """

    share_by_length: dict[int, float]
    share_longer: float
    mean_length: float
    mean_words: float
    variance_of_length: float
    copied_tokens: float
    copied_steps: float
    sources_per_text: float
    num_sources: int
    longest_run: int
    num_texts: int


@dataclass(frozen=True, slots=True)
class TextCopies:
    """The copies of one text.

    :param step_tokens: Number of tokens of each segment; copies that follow each other in their
        document are one.
    :param is_copy: Whether each segment was copied.
    :param sources: Documents that were copied from.
    :param longest_run: Most tokens copied from one place in one go.
    :param copy_words: Number of white-space separated words of each copy.
    :param num_steps: Number of decoding steps.
    """

    step_tokens: tuple[int, ...]
    is_copy: tuple[bool, ...]
    sources: frozenset[tuple[str, str]]
    longest_run: int
    copy_words: tuple[int, ...]
    num_steps: int

    @property
    def num_tokens(self) -> int:
        """Number of tokens of the text.

        :returns: The count.
        """
        return sum(self.step_tokens)

    @property
    def num_copied(self) -> int:
        """Number of tokens that were copied.

        :returns: The count.
        """
        pairs = zip(self.step_tokens, self.is_copy, strict=True)
        return sum(tokens for tokens, is_copy in pairs if is_copy)


def read_copies(generation: Generation, *, count_tokens: CountTokens) -> TextCopies:
    """Count the copies of one text.

    :param generation: The text with its citations.
    :param count_tokens: Number of prefix-encoder tokens of a copied text.
    :returns: Its copies, those of the prompt among them; a vocabulary step is one token, whatever
        text it completes.
    """
    segments = generation.segments
    is_copy = tuple(segment.origin != VOCABULARY for segment in segments)
    tokens = tuple(
        count_tokens(segment.text) if copied else 1
        for segment, copied in zip(segments, is_copy, strict=True)
    )
    sources = {
        (generation.corpus, segment.document_id or "")
        for segment in segments
        if segment.origin == CORPUS
    }
    words = tuple(len(s.text.split()) for s in segments if s.origin != VOCABULARY)
    longest_run = _longest_run(segments, tokens)
    return TextCopies(tokens, is_copy, frozenset(sources), longest_run, words, generation.num_steps)


def summarise_copies(texts: Sequence[TextCopies]) -> PhraseStatistics:
    """Summarise the copies of all texts of a system.

    :param texts: The copies of each text.
    :returns: The statistics.
    :raises ValueError: If no text has a step.
    """
    tokens = np.array([count for text in texts for count in text.step_tokens], dtype=np.int64)
    is_copy = np.array([flag for text in texts for flag in text.is_copy], dtype=bool)
    if not len(tokens):
        raise ValueError("phrase statistics need at least one decoding step")
    copied = tokens[is_copy]
    words = np.array([count for text in texts for count in text.copy_words], dtype=np.int64)
    lengths = range(1, MAX_ORDER + 1)
    return PhraseStatistics(
        share_by_length={n: float((tokens == n).mean()) for n in lengths},
        share_longer=float((tokens > MAX_ORDER).mean()),
        mean_length=float(copied.mean()) if len(copied) else 0.0,
        mean_words=float(words.mean()) if len(words) else 0.0,
        variance_of_length=float(copied.var()) if len(copied) else 0.0,
        copied_tokens=float(copied.sum() / tokens.sum()),
        copied_steps=float(is_copy.mean()),
        sources_per_text=float(np.mean([len(text.sources) for text in texts])),
        num_sources=len(frozenset().union(*(text.sources for text in texts))),
        longest_run=max(text.longest_run for text in texts),
        num_texts=len(texts),
    )


def _longest_run(segments: Sequence[Segment], tokens: Sequence[int]) -> int:
    # adjacent copies that also lie side by side in their document are one run
    longest = run = 0
    before: Segment | None = None
    for segment, count in zip(segments, tokens, strict=True):
        if segment.origin != CORPUS:
            run, before = 0, None
            continue
        follows = (
            before is not None
            and before.document_id == segment.document_id
            and before.char_end == segment.char_start
        )
        run = run + count if follows else count
        before = segment
        longest = max(longest, run)
    return longest
