"""Passages that stand in a text: its tokens go in, what would write one of them again comes out."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cog.model.words import WordSplitter

LONGEST_NUMBER = 20  # tokens of one that a vocabulary writes: a trillion, with its commas, has 17


@dataclass(frozen=True, slots=True)
class Refusable:
    """The tokens that may be refused, whatever they follow, or within a number.

    Those that begin a word of letters are the only ones at which a passage is broken off. Signs and
    the rest of a word are left alone: "Regulation (EU) 2019/1020" is 14 tokens that a text must be
    able to say twice, and half a word or another year is worse than a repetition. A number that
    does not end is neither: its digits are refused.

    :param begins: Whether each token begins a word of letters. *Shape:* ``(vocab_size,)``
    :param is_digit: Whether it is of digits, or a comma. *Shape:* ``(vocab_size,)``
    """

    begins: NDArray[np.bool_]
    is_digit: NDArray[np.bool_]

    @classmethod
    def find(cls, splitter: WordSplitter) -> "Refusable":
        """Find them in a vocabulary."""
        spelled = [each.decode(errors="replace") for each in splitter.token_bytes]
        begins = [each[:1] == " " and each[1:2].isalpha() for each in spelled]
        is_digit = [each.replace(",", "0").isdecimal() for each in spelled]
        return cls(np.array(begins), np.array(is_digit))


@dataclass(slots=True)
class Repeats:
    """The passages of a text, prefix included (``no_repeat_ngram_size`` of other tools).

    :param num_tokens: Length of a passage; 0 where repetition is allowed.
    :param refusable: Tokens that may be refused.
    """

    num_tokens: int
    refusable: Refusable
    _next: dict[tuple[int, ...], list[int]] = field(default_factory=dict)

    def add(self, token_ids: Sequence[int], num_new: int) -> None:
        """Remember the passages that end in the new ones of a text's last tokens."""
        if not self.num_tokens:
            return
        for place in range(max(self.num_tokens, len(token_ids) - num_new + 1), len(token_ids) + 1):
            *before, last = token_ids[place - self.num_tokens : place]
            if self.refusable.begins[last]:
                self._next.setdefault(tuple(before), []).append(last)

    def find(self, token_ids: Sequence[int]) -> list[int]:
        """The tokens that would write a passage again behind a text's last ones.

        Or that would go on with a number of ``LONGEST_NUMBER`` tokens.
        """
        if not self.num_tokens:
            return []
        is_digit, last = self.refusable.is_digit, token_ids[-LONGEST_NUMBER:]
        if len(last) == LONGEST_NUMBER and is_digit[np.array(last)].all():
            return np.flatnonzero(is_digit).tolist()
        if len(token_ids) < self.num_tokens - 1 or not self._next:
            return []
        return self._next.get(tuple(token_ids[len(token_ids) - self.num_tokens + 1 :]), [])
