"""Passages that stand in a text: its tokens go in, what would write one of them again comes out."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cog.model.words import WordSplitter


def find_word_begins(splitter: WordSplitter) -> NDArray[np.bool_]:
    """Find the tokens that begin a word of letters, the only ones at which a passage is broken off.

    Numbers, signs and the rest of a word are left alone: "Regulation (EU) 2019/1020" is 14 tokens
    that a text must be able to say twice, and half a word or another year is worse than a
    repetition.

    *Shape:* ``(vocab_size,)``.
    """
    spelled = (each.decode(errors="replace") for each in splitter.token_bytes)
    return np.array([each[:1] == " " and each[1:2].isalpha() for each in spelled])


@dataclass(slots=True)
class Repeats:
    """The passages of a text, prefix included (``no_repeat_ngram_size`` of other tools).

    :param num_tokens: Length of a passage; 0 where repetition is allowed.
    :param begins_word: Tokens that may be refused. *Shape:* ``(vocab_size,)``
    """

    num_tokens: int
    begins_word: NDArray[np.bool_]
    _next: dict[tuple[int, ...], list[int]] = field(default_factory=dict)

    def add(self, token_ids: Sequence[int], num_new: int) -> None:
        """Remember the passages that end in the new ones of a text's last tokens."""
        if not self.num_tokens:
            return
        for place in range(max(self.num_tokens, len(token_ids) - num_new + 1), len(token_ids) + 1):
            *before, last = token_ids[place - self.num_tokens : place]
            if self.begins_word[last]:
                self._next.setdefault(tuple(before), []).append(last)

    def find(self, token_ids: Sequence[int]) -> list[int]:
        """The tokens that would write a passage again behind a text's last ones."""
        if len(token_ids) < self.num_tokens - 1 or not self._next:
            return []
        return self._next.get(tuple(token_ids[len(token_ids) - self.num_tokens + 1 :]), [])
