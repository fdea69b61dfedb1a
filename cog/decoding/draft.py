"""Drafts: a choice goes in, the tokens that a step proposes come out, and what is kept of them.

A step drafts tokens, the pass that reads them verifies them, and only what was accepted is written.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cog.decoding.pool import Pool
from cog.model.words import BARRED, CAN_END


@dataclass(frozen=True, slots=True)
class Draft:
    """What a step proposes to write.

    :param token_ids: The tokens, at least one.
    :param num_chosen: How many of them were chosen: a token of the vocabulary, or a phrase; 0 where
        a draft goes on from one that was accepted whole, without a choice.
    :param probability: Probability of the choice; 1 where there was none.
    :param first_probability: Probability of the first token under the prefix encoder.
    :param first_word: The gathered word where a copy begins; -1 for a token of the vocabulary.
    :param num_chosen_words: Number of words of the chosen phrase.
    :param word_ends: Number of tokens up to the end of each word that is drafted whole. *Shape:*
        ``(num_words,)``
    :param num_agreed: How many tokens before ``first_word`` are what the text ends with.
    :param is_near: Whether the document is about the same thing, so that what was accepted of the
        draft counts as agreement too.
    :param least_ratio: Share of the best token's probability that each token must have. Above 0,
        the draft is written as a copy or not at all.
    """

    token_ids: Sequence[int]
    num_chosen: int
    probability: float
    first_probability: float
    first_word: int = -1
    num_chosen_words: int = 0
    word_ends: Sequence[int] = ()
    num_agreed: float = 0.0
    is_near: bool = False
    least_ratio: float = 0.0

    @property
    def is_copy(self) -> bool:
        """Whether it stands in a source."""
        return self.first_word >= 0

    @property
    def goes_on(self) -> bool:
        """Whether it goes on where the last copy ended, without a choice."""
        return self.num_chosen == 0


@dataclass(frozen=True, slots=True)
class Kept:
    """What is written of a draft.

    :param num_tokens: Number of its first tokens; 0 if something else is to be chosen.
    :param num_words: Number of words of them that are a copy; 0 if all are told as vocabulary.
    """

    num_tokens: int
    num_words: int


def find_draft_end(
    pool: Pool, word: int, *, max_words: int, blocked: NDArray[np.bool_] | None, is_near: bool
) -> int:
    """Find how far a draft may go on at its source, from the word behind its last one.

    Gives one past the last word: before the end of the run, before a word that is blocked, and
    before one that no phrase may hold, unless the document is about the same thing (``is_near``),
    so that the draft may go on over the end of a sentence. Blocked are words that may not be
    copied; None if all may. *Shape:* ``(num_words,)``
    """
    if word >= pool.num_words or pool.run_starts[word] == word:
        return word  # the last word was the last of its run
    end = min(word + max_words, int(pool.run_ends[word]))
    stops = (pool.chunks.word_flags[word:end] & BARRED) != 0
    if is_near:
        stops[:] = False
    if blocked is not None:
        stops |= blocked[word:end]
    found = np.flatnonzero(stops)
    return word + int(found[0]) if len(found) else max(word, end)


def draft_copy(
    pool: Pool,
    span: tuple[int, int],
    *,
    num_chosen_words: int,
    max_tokens: int,
    probability: float = 1.0,
    first_probability: float = 1.0,
    num_agreed: float = 0.0,
    is_near: bool = False,
    least_ratio: float = 0.0,
) -> Draft:
    """Draft the words ``[first, end)`` of the pool, cut at the last token there is room for.

    What the other values mean is told by :class:`Draft`.
    """
    first, end = span
    tokens = pool.chunks.word_tokens
    begin = int(tokens[first, 0]) if first < end else 0
    word_ends = (tokens[first:end, 1] - begin).tolist()
    num_tokens = min(max_tokens, word_ends[-1] if word_ends else 0)
    token_ids = pool.chunks.token_ids[begin : begin + num_tokens].tolist()
    chosen = word_ends[num_chosen_words - 1] if num_chosen_words else 0
    return Draft(
        token_ids=token_ids,
        num_chosen=min(chosen, len(token_ids)),
        probability=probability,
        first_probability=first_probability,
        first_word=first,
        num_chosen_words=num_chosen_words,
        word_ends=[each for each in word_ends if each <= len(token_ids)],
        num_agreed=num_agreed,
        is_near=is_near,
        least_ratio=least_ratio,
    )


def keep_draft(
    draft: Draft, num_accepted: int, *, pool: Pool, min_words: int, min_bits: float
) -> Kept:
    """Say what is written of a draft of which verification accepts the first tokens, at least one.

    A copy is whole words, the last of which may end a phrase; unless it goes on with the last copy,
    it has ``min_words`` words and ``min_bits`` of information. What is less is no copy: unless the
    draft has a ``least_ratio``, its tokens are written all the same, as tokens of the vocabulary
    are.
    """
    num_words = sum(end <= num_accepted for end in draft.word_ends) if draft.is_copy else 0
    words = slice(draft.first_word, draft.first_word + num_words)
    can_end = np.flatnonzero((pool.chunks.word_flags[words] & CAN_END) != 0)
    num_copied = int(can_end[-1]) + 1 if len(can_end) else 0
    if num_copied and not draft.goes_on:
        bits = pool.word_bits[draft.first_word : draft.first_word + num_copied]
        if num_copied < min_words or bits.sum(dtype=np.float64) < min_bits:
            num_copied = 0
    if num_copied:
        return Kept(draft.word_ends[num_copied - 1], num_copied)
    if draft.least_ratio and not draft.goes_on:
        return Kept(0, 0)
    # what was not chosen is only worth writing as a copy
    return Kept(min(num_accepted, max(1, draft.num_chosen)), 0)
