"""A text while it is being written: choices go in as drafts, what was accepted of them is written.

Text, tokens, citations and counts follow from what was accepted, and from nothing else.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod

from torch import Tensor

from cog.decoding.blocks import Blocks
from cog.decoding.choices import MAX_CONTEXT_TOKENS, Choices, TextEnd
from cog.decoding.distribution import NextChoice
from cog.decoding.draft import Draft, Kept, draft_copy, find_draft_end, keep_draft
from cog.decoding.joins import extend_tail
from cog.decoding.plausibility import find_least_ratio, verify_draft
from cog.decoding.pool import Pool
from cog.decoding.repeats import Refusable, Repeats
from cog.decoding.request import Request
from cog.decoding.sampling import Chooser
from cog.decoding.text import Copy, GrowingText
from cog.decoding.verbatim import count_room
from cog.model.words import WordSplitter
from cog.records import Document

LEAST_REACH = 4  # words that a draft goes on at least, where it may


@dataclass(slots=True)
class Row:
    """One text of a batch.

    :param token_ids: Tokens of the prefix and of what was written, as the prefix encoder reads
        them.
    :param num_read: Number of tokens of the prefix.
    :param blocks: What it may not copy any more.
    :param repeats: What it may not write again.
    :param tail: Last bytes of the prefix and what follows it.
    :param num_steps: Number of drafts of which something was written.
    :param num_passes: Number of passes that read one of them.
    :param num_reported: Number of segments that were reported as final.
    :param num_told: Number of characters of the copy behind them when that was told last.
    :param documents: The documents that were cited so far, by their positions in the index.
    :param num_added: Number of chunks that were added to its pool.
    :param reach: Number of words that its next draft goes on at its source.
    :param needs_token: Whether the last choice was a copy of which nothing was accepted, so that
        the next one is a token of the vocabulary.
    :param next_word: The word with which a draft that was accepted whole goes on; -1 for none.
    """

    request: Request
    pool: Pool
    chooser: Chooser
    token_ids: list[int]
    num_read: int
    blocks: Blocks
    repeats: Repeats
    tail: bytes
    text: GrowingText = field(default_factory=GrowingText)
    num_steps: int = 0
    num_passes: int = 0
    num_reported: int = 0
    num_told: int = 0
    documents: dict[int, Document] = field(default_factory=dict)
    num_added: int = 0
    reach: int = 0
    needs_token: bool = False
    next_word: int = -1

    @classmethod
    def begin(
        cls,
        request: Request,
        pool: Pool,
        prefix_ids: Sequence[int],
        *,
        refusable: Refusable,
    ) -> "Row":
        """Begin a text, in which some tokens of the vocabulary may be refused."""
        row = cls(
            request=request,
            pool=pool,
            chooser=Chooser(request.decoding, request.prefix),
            token_ids=list(prefix_ids),
            num_read=len(prefix_ids),
            blocks=Blocks(request.decoding, request.prefix),
            repeats=Repeats(request.decoding.no_repeat_ngram, refusable),
            tail=extend_tail(b"", request.prefix.encode()),
            reach=min(2 * LEAST_REACH, request.decoding.span_words),
        )
        row.blocks.enter(pool)
        row.repeats.add(row.token_ids, len(row.token_ids))
        return row

    @property
    def num_tokens(self) -> int:
        """Number of tokens written."""
        return len(self.token_ids) - self.num_read

    @property
    def num_left(self) -> int:
        """Number of tokens still to write."""
        return self.request.decoding.max_new_tokens - self.num_tokens

    @property
    def end(self) -> TextEnd:
        """Where the text stands."""
        return TextEnd(
            self.token_ids,
            self.num_tokens,
            self.tail,
            self.blocks.mask,
            self.blocks.copied_words,
            self.repeats.find(self.token_ids),
            self.needs_token,
        )

    def enter(self, pool: Pool) -> None:
        """Copy from another pool from now on."""
        self.pool, self.next_word = pool, -1
        self.blocks.enter(pool)

    def choose(self, choices: Choices, distribution: NextChoice, token_logits: Tensor) -> Draft:
        """Take one choice; logits are those of the prefix encoder alone."""
        choice, vocab_size = self.chooser.choose(distribution), len(choices.token_logits)
        probability = distribution.probability(choice)
        if choice < vocab_size:
            return Draft([choice], 1, probability, probability)
        occurrences = self.pool.phrases.occurrences(choice - vocab_size)
        scores = choices.phrase_scores[occurrences.start : occurrences.stop]
        best = occurrences[int(scores.argmax())]  # of the places where the text stands
        first, last = self.pool.phrases.span(best)
        begin = int(self.pool.begins[first])
        first_token = int(self.pool.chunks.token_ids[begin])
        return self._draft_words(
            first,
            num_chosen=last + 1 - first,
            probability=probability,
            first_probability=float(token_logits.softmax(0)[first_token]),
            num_agreed=choices.agreement.at(begin),
        )

    def go_on(self, token_logits: Tensor) -> Draft | None:
        """Go on where a draft that was accepted whole ended, without a choice.

        None if there is nothing, or its first token is not accepted.
        """
        first = self.next_word
        if first < 0:
            return None
        if first == self.pool.num_words:
            return None
        agreement = self.pool.find_agreement(self.token_ids[-MAX_CONTEXT_TOKENS:])
        num_agreed = agreement.at(int(self.pool.begins[first]))
        draft = self._draft_words(first, num_chosen=0, num_agreed=num_agreed)
        if not draft.token_ids:
            return None
        one = replace(draft, token_ids=draft.token_ids[:1])
        accepted, found = verify_draft(
            token_logits.unsqueeze(0), one, self.request.decoding, first=0
        )
        return replace(draft, first_probability=found[0]) if accepted else None

    def _draft_words(
        self,
        first: int,
        *,
        num_chosen: int,
        num_agreed: float,
        probability: float = 1.0,
        first_probability: float = 1.0,
    ) -> Draft:
        decoding, pool = self.request.decoding, self.pool
        room = self.reach
        if decoding.max_verbatim_words:
            allowed = count_room(
                pool,
                first,
                token_ids=self.end.written_ids,
                max_words=decoding.max_verbatim_words,
            )
            room = min(room, allowed - num_chosen)
        is_near, least_ratio = False, 0.0
        if first < pool.num_words:
            similarity = pool.similarities[first]
            is_near = bool(similarity >= decoding.relevance_level)
            least_ratio = find_least_ratio(pool.nearest, decoding)
        end = find_draft_end(
            pool,
            first + num_chosen,
            max_words=max(0, room),
            blocked=self.blocks.mask,
            is_near=is_near,
        )
        return draft_copy(
            pool,
            (first, end),
            num_chosen_words=num_chosen,
            max_tokens=self.num_left,
            probability=probability,
            first_probability=first_probability,
            num_agreed=num_agreed,
            is_near=is_near,
            least_ratio=least_ratio,
        )

    def write(
        self,
        draft: Draft,
        num_accepted: int,
        probabilities: Sequence[float],
        *,
        splitter: WordSplitter,
        min_words: int,
    ) -> int:
        """Write what was accepted of a draft, and give the number of tokens written.

        Probabilities are those of its tokens but the first, under the prefix encoder; as many as
        were looked at. If nothing is written, a token is to be chosen next.
        """
        if not draft.goes_on:
            self.chooser.settle()
        kept = keep_draft(
            draft,
            num_accepted,
            pool=self.pool,
            min_words=min_words,
            min_bits=self.request.decoding.min_bits,
        )
        self.needs_token = not kept.num_tokens
        if self.needs_token:
            return 0
        token_ids = list(draft.token_ids[: kept.num_tokens])
        spelled = [splitter.token_bytes[token_id] for token_id in token_ids]
        of_tokens = [draft.first_probability, *probabilities]
        if kept.num_words:
            first, end = draft.first_word, draft.first_word + kept.num_words
            is_whole = kept.num_words >= draft.num_chosen_words
            written = b"".join(spelled).decode(errors="replace")
            self.text.append_copy(
                written,
                Copy(*self.pool.get_place(first)),
                # of a phrase that was cut, what the prefix encoder gives to its words
                probability=draft.probability if is_whole else prod(of_tokens[: kept.num_tokens]),
                information=float(self.pool.word_bits[first:end].sum()),
            )
            self.blocks.add_copy(self.pool, first, end)
        else:
            written = "".join(
                self.text.append_token(each, probability=probability)
                for each, probability in zip(spelled, of_tokens, strict=False)
            )
        self.blocks.add_text(self.pool, written)
        self.token_ids += token_ids
        self.repeats.add(self.token_ids, len(token_ids))
        self.tail = extend_tail(self.tail, b"".join(spelled))
        self.num_steps += 1
        self._reach_on(draft, kept)
        return kept.num_tokens

    def _reach_on(self, draft: Draft, kept: Kept) -> None:
        # drafts are as long as the last ones were worth: tokens that are read and thrown away cost
        # as much as those that are kept
        span_words = self.request.decoding.span_words
        self.next_word = -1
        if not draft.is_copy or not span_words:
            return
        num_words = len(draft.word_ends)
        if kept.num_words and kept.num_words == num_words:
            self.next_word = draft.first_word + num_words
            self.reach = min(span_words, 2 * self.reach)
        else:
            brought = max(0, kept.num_words - draft.num_chosen_words)
            self.reach = min(span_words, max(LEAST_REACH, brought + 2))
