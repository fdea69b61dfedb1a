"""A text while it is being written: choices go in, tokens for the cache and cited text come out."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from cog.decoding.distribution import NextChoice
from cog.decoding.pool import Pool
from cog.decoding.request import Request
from cog.decoding.sampling import Chooser
from cog.decoding.text import Copy, GrowingText
from cog.model.words import WordSplitter


@dataclass(slots=True)
class Row:
    """One text of a batch.

    :param request: What was asked.
    :param pool: What it may copy from.
    :param chooser: Takes its choices.
    :param text: What is written.
    :param num_tokens: Number of tokens appended.
    :param num_steps: Number of steps taken.
    :param new_ids: Tokens of the last step, which the cache has not seen.
    :param num_reported: Number of segments that were reported as final.
    """

    request: Request
    pool: Pool
    chooser: Chooser
    text: GrowingText
    num_tokens: int
    num_steps: int
    new_ids: list[int]
    num_reported: int

    @classmethod
    def begin(cls, request: Request, pool: Pool) -> "Row":
        """Begin a text.

        :param request: What is asked.
        :param pool: What it may copy from.
        :returns: The row.
        """
        chooser = Chooser(request.decoding, request.prefix)
        return cls(request, pool, chooser, GrowingText(), 0, 0, [], 0)

    @property
    def num_left(self) -> int:
        """Number of tokens still to append.

        :returns: The count.
        """
        return self.request.decoding.max_new_tokens - self.num_tokens

    @property
    def needs_check(self) -> bool:
        """Whether the last step copied tokens that the prefix encoder has yet to find plausible.

        :returns: True if they must be checked.
        """
        is_copy = self.text.copies[-1] is not None
        return self.request.decoding.min_token_probability > 0 and is_copy and len(self.new_ids) > 1

    def take(self, distribution: NextChoice, *, vocab_size: int, splitter: WordSplitter) -> None:
        """Take one choice and append it, cut at the last token there is room for.

        :param distribution: The next-choice distribution.
        :param vocab_size: Number of choices that are tokens.
        :param splitter: Spells tokens.
        """
        choice = self.chooser.choose(distribution)
        probability = distribution.probability(choice)
        if choice < vocab_size:
            self.new_ids = [choice]
            self.text.append_token(splitter.token_bytes[choice], probability=probability)
        else:
            token_ids, copy = self._locate(distribution, choice - vocab_size)
            token_ids = token_ids[: self.num_left]
            self.new_ids = token_ids.tolist()
            self.text.append_copy(splitter.decode(token_ids), copy, probability=probability)
        self.num_tokens += len(self.new_ids)
        self.num_steps += 1

    def cut(self, num_kept: int, *, splitter: WordSplitter) -> None:
        """Keep only the first tokens of the last copy, and cut its citation with it.

        :param num_kept: Number of tokens kept, at least one.
        :param splitter: Spells tokens.
        """
        self.num_tokens -= len(self.new_ids) - num_kept
        self.new_ids = self.new_ids[:num_kept]
        self.text.cut_copy(splitter.decode(np.array(self.new_ids)))

    def _locate(self, distribution: NextChoice, text: int) -> tuple[NDArray[np.int32], Copy]:
        # the best-scored of the places where the text stands
        phrases, chunks = self.pool.phrases.phrases, self.pool.chunks
        occurrences = phrases.occurrences(text)
        scores = distribution.scores[torch.from_numpy(occurrences).to(distribution.scores.device)]
        best = occurrences[int(scores.argmax())]
        first, last = int(phrases.first[best]), int(phrases.last[best])
        chunk = int(np.searchsorted(chunks.word_offsets, first, side="right")) - 1
        copy = Copy(int(chunks.document_ordinals[chunk]), int(chunks.word_chars[first, 0]))
        tokens = slice(chunks.word_tokens[first, 0], chunks.word_tokens[last, 1])
        return chunks.token_ids[tokens], copy
