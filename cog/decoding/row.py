"""A text while it is being written: choices go in, tokens for the cache and cited text come out."""

from dataclasses import dataclass

import numpy as np
import torch

from cog.decoding.distribution import NextChoice
from cog.decoding.joins import extend_tail
from cog.decoding.pool import Pool
from cog.decoding.request import Request
from cog.decoding.sampling import Chooser
from cog.decoding.text import Copy, GrowingText
from cog.index.records import GatheredChunks
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
    :param tail: Last bytes of the prefix and what follows it.
    :param tail_before: The same before the last step.
    :param word_ends: Number of tokens up to the end of each word of the last copy.
    :param is_refused: Whether nothing of the last copy was plausible, so that the vocabulary has
        its turn.
    """

    request: Request
    pool: Pool
    chooser: Chooser
    text: GrowingText
    num_tokens: int
    num_steps: int
    new_ids: list[int]
    num_reported: int
    tail: bytes
    tail_before: bytes
    word_ends: list[int]
    is_refused: bool

    @classmethod
    def begin(cls, request: Request, pool: Pool) -> "Row":
        """Begin a text.

        :param request: What is asked.
        :param pool: What it may copy from.
        :returns: The row.
        """
        chooser = Chooser(request.decoding, request.prefix)
        tail = extend_tail(b"", request.prefix.encode())
        return cls(
            request=request,
            pool=pool,
            chooser=chooser,
            text=GrowingText(),
            num_tokens=0,
            num_steps=0,
            new_ids=[],
            num_reported=0,
            tail=tail,
            tail_before=tail,
            word_ends=[],
            is_refused=False,
        )

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
        return self.request.decoding.is_verified and is_copy and len(self.new_ids) > 1

    def take(self, distribution: NextChoice, *, vocab_size: int, splitter: WordSplitter) -> None:
        """Take one choice and append it, cut at the last token there is room for.

        :param distribution: The next-choice distribution.
        :param vocab_size: Number of choices that are tokens.
        :param splitter: Spells tokens.
        """
        choice = self.chooser.choose(distribution)
        probability = distribution.probability(choice)
        if choice < vocab_size:
            self.write_token(choice, probability=probability, splitter=splitter)
        else:
            best = self._find_best(distribution, choice - vocab_size)
            phrases, chunks = self.pool.phrases.phrases, self.pool.chunks
            span = int(phrases.first[best]), int(phrases.last[best])
            self.write_phrase(chunks, span, probability=probability, splitter=splitter)

    def write_token(self, token_id: int, *, probability: float, splitter: WordSplitter) -> None:
        """Append a token of the vocabulary.

        :param token_id: The token.
        :param probability: Probability of the choice.
        :param splitter: Spells tokens.
        """
        self.new_ids = [token_id]
        written = splitter.token_bytes[token_id]
        self.text.append_token(written, probability=probability)
        self._count(written)

    def write_phrase(
        self,
        chunks: GatheredChunks,
        span: tuple[int, int],
        *,
        probability: float,
        splitter: WordSplitter,
    ) -> None:
        """Append a phrase, cut at the last token there is room for.

        :param chunks: The gathered words.
        :param span: First and last word of the phrase.
        :param probability: Probability of the choice.
        :param splitter: Spells tokens.
        """
        first, last = span
        chunk = int(np.searchsorted(chunks.word_offsets, first, side="right")) - 1
        copy = Copy(int(chunks.document_ordinals[chunk]), int(chunks.word_chars[first, 0]))
        begin, end = chunks.word_tokens[first, 0], chunks.word_tokens[last, 1]
        self.word_ends = (chunks.word_tokens[first : last + 1, 1] - begin).tolist()
        token_ids = chunks.token_ids[begin:end][: self.num_left]
        self.new_ids = token_ids.tolist()
        written = splitter.decode(token_ids)
        self.text.append_copy(written, copy, probability=probability)
        self._count(written)

    def _count(self, written: bytes) -> None:
        self.tail_before, self.tail = self.tail, extend_tail(self.tail, written)
        self.is_refused = False
        self.num_tokens += len(self.new_ids)
        self.num_steps += 1

    def cut(self, num_plausible: int, *, splitter: WordSplitter) -> int:
        """Keep the words of the last copy before its first implausible token, and cut its citation.

        If no word is left, the copy is taken back.

        :param num_plausible: Number of its tokens that are plausible.
        :param splitter: Spells tokens.
        :returns: Number of tokens kept.
        """
        num_new = len(self.new_ids)
        if num_plausible >= num_new:
            return num_new
        num_kept = max((end for end in self.word_ends if end <= num_plausible), default=0)
        self.new_ids = self.new_ids[:num_kept]
        self.num_tokens -= num_new - num_kept
        kept = splitter.decode(np.array(self.new_ids, dtype=np.int32))
        self.tail = extend_tail(self.tail_before, kept)
        self.is_refused = not num_kept
        if self.is_refused:
            self.text.drop_copy()
            self.num_steps -= 1
        else:
            self.text.cut_copy(kept)
        return num_kept

    def _find_best(self, distribution: NextChoice, text: int) -> int:
        # the best-scored of the places where the text stands
        occurrences = self.pool.phrases.phrases.occurrences(text)
        scores = distribution.scores[torch.from_numpy(occurrences).to(distribution.scores.device)]
        return int(occurrences[int(scores.argmax())])
