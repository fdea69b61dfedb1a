"""The texts that share passes: drafts and prefixes are read together, what is accepted is written.

A text that joins has its prefix read in the pass that reads the others' drafts. Where few tokens
are to be read, guesses of what follows are read with them: what is chosen as it was guessed is
written without a pass.
"""

import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from cog.decoding.draft import Draft
from cog.decoding.guesses import NO_GUESSES, Guesses
from cog.decoding.plausibility import verify_draft
from cog.decoding.request import Request
from cog.decoding.row import Row
from cog.decoding.workers import Workers
from cog.errors import CogError
from cog.model.load import CogModel
from cog.model.prefix_encoder import PREFILL_TOKENS

if TYPE_CHECKING:
    from cog.decoding.generator import CopyGenerator

Ending = tuple[Tensor, Tensor]  # hidden state at the last token of a text, and token logits


@dataclass(slots=True)
class Ahead:
    """What was read behind a text's end.

    :param states: Hidden state at each guess. *Shape:* ``(num_tokens, dim)``
    :param logits: What each says of the next token. *Shape:* ``(num_tokens, vocab_size)``
    :param chosen: Numbers of those that were chosen since, and written.
    """

    guesses: Guesses
    states: Tensor
    logits: Tensor
    chosen: list[int] = field(default_factory=list)

    def find(self, draft: Draft) -> int:
        """The number of the guess that is proposed; -1 for more than a token, and none of them."""
        if len(draft.token_ids) != 1:
            return -1
        return self.guesses.find(self.chosen[-1] if self.chosen else -1, draft.token_ids[0])


@dataclass(slots=True, eq=False)
class Ticket:
    """A text on its way through a queue.

    :param is_streamed: Whether its segments are told as they come.
    :param is_alone: Whether its passes are its own.
    :param job: Makes what it may copy from; None if it has not begun, or is over.
    :param row: What is written; None until the job is done.
    :param unread: Its tokens that the cache has not read, but for those of a draft.
    :param ending: What is known at its end; None until everything is read.
    :param draft: What is proposed to be written next.
    :param ahead: What the cache has read behind the text's end.
    :param seconds: What it took, by part.
    :param is_cancelled: Whether nobody waits for it any more.
    """

    generator: "CopyGenerator"
    request: Request
    is_streamed: bool = False
    is_alone: bool = False
    job: "Future[tuple[Row, dict[str, float]]] | None" = None
    row: Row | None = None
    unread: list[int] = field(default_factory=list)
    ending: Ending | None = None
    draft: Draft | None = None
    ahead: Ahead | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    error: CogError | None = None
    is_cancelled: bool = False

    @property
    def text(self) -> Row:
        """What is written, once the job is done."""
        assert self.row is not None
        return self.row

    @property
    def is_over(self) -> bool:
        """Whether it takes part in no further pass."""
        return self.is_cancelled or self.error is not None or self.text.num_left <= 0


class Batch:
    """Texts that share passes and a cache; what each needs alone is left to workers."""

    def __init__(self, model: CogModel, workers: Workers) -> None:
        self._workers = workers
        self.tickets: list[Ticket] = []  # in the order of the cache
        self._encoder = model.prefix_encoder
        unwritable = model.splitter.list_unwritable(self._encoder.vocab_size)
        self._unwritable = torch.from_numpy(unwritable).to(self._encoder.device)
        self._cache = self._encoder.new_cache(batch=0, capacity=1)

    def join(self, ticket: Ticket) -> None:
        """Take in a text whose job is done."""
        ticket.unread, ticket.ending, ticket.ahead = list(ticket.text.token_ids), None, None
        self._cache.add(len(ticket.unread) + ticket.text.num_left)
        self.tickets.append(ticket)

    def leave(self, ticket: Ticket) -> None:
        """Give a text's place away; the last one takes it."""
        place = self.tickets.index(ticket)
        self._cache.drop(place)
        self.tickets[place] = self.tickets[-1]
        self.tickets.pop()

    def shrink(self) -> bool:
        """Let go of memory that texts needed that left; what is left is read again.

        Gives False if there is none.
        """
        if self._cache.num_rows <= len(self.tickets):
            return False
        tickets, self.tickets = self.tickets, []
        self._cache = self._encoder.new_cache(batch=0, capacity=1)
        for ticket in tickets:
            self.join(ticket)
        return True

    @torch.inference_mode()
    def step(self) -> None:
        """Draft, read all drafts and what is unread of prefixes in one pass, and write.

        Where the device has no room for the pass, it raises ``torch.OutOfMemoryError``; when some
        texts have left, the next step goes on with what was drafted.
        """
        began = time.perf_counter()
        self._follow()  # where memory gave out
        self._draft(self.tickets)
        for ticket in self.tickets:  # what fills a text and needs no check is not read
            draft = ticket.draft
            if draft is not None and len(draft.token_ids) == 1 >= ticket.text.num_left:
                self._write(ticket, draft, 1, ())
        if not all(ticket.is_over for ticket in self.tickets):
            self._read()
            self._follow()
        spent = (time.perf_counter() - began) / len(self.tickets)
        for ticket in self.tickets:
            ticket.seconds["decode"] = ticket.seconds.get("decode", 0.0) + spent

    def _draft(self, tickets: Sequence[Ticket]) -> None:
        groups: dict[CopyGenerator, list[Ticket]] = {}
        for ticket in tickets:
            if ticket.ending is not None and ticket.draft is None and not ticket.is_over:
                groups.setdefault(ticket.generator, []).append(ticket)
        found, jobs = [], []
        for generator, members in groups.items():
            texts = [(each.text, each.ending) for each in members if each.ending is not None]
            drafts, more = generator.draft(texts)
            found.append(drafts)
            jobs += more
        self._workers.run(jobs)  # those of all generators, so that no core waits for the last
        for members, drafts in zip(groups.values(), found, strict=True):
            for ticket, draft in zip(members, drafts, strict=True):
                if isinstance(draft, CogError):
                    ticket.error = draft
                else:
                    ticket.draft = draft

    def _follow(self) -> None:
        # choose behind what was guessed, as long as the guesses are right
        while followers := [ticket for ticket in self.tickets if ticket.ahead is not None]:
            self._draft(followers)
            for ticket in followers:
                ahead, draft = ticket.ahead, ticket.draft
                assert ahead is not None
                number = -1 if draft is None or ticket.is_over else ahead.find(draft)
                if number >= 0 and draft is not None and self._write(ticket, draft, 1, ()):
                    ahead.chosen.append(number)
                    ticket.ending = ahead.states[number], ahead.logits[number]
                else:
                    place = self.tickets.index(ticket)
                    end = self._cache.lengths[place] - len(ahead.guesses.token_ids)
                    self._cache.keep(place, end, [end + each for each in ahead.chosen])
                    ticket.ahead = None

    def _choose_tokens(self) -> list[list[int]]:
        # what the next pass reads of each text: its draft, or a part of what is unread
        room = PREFILL_TOKENS
        chosen: list[list[int]] = []
        for ticket in self.tickets:
            if ticket.is_over:
                chosen.append([])
            elif ticket.unread:
                chosen.append(ticket.unread[:room])
                room -= len(chosen[-1])
            else:
                chosen.append(list(ticket.draft.token_ids) if ticket.draft else [])
        return chosen

    def _guess(self, chosen: Sequence[Sequence[int]]) -> list[Guesses]:
        # what the pass reads behind drafts at no price
        guesses = [NO_GUESSES] * len(chosen)
        room = self._encoder.num_cheap_tokens - sum(map(len, chosen))
        drafted = [k for k, ids in enumerate(chosen) if ids and not self.tickets[k].unread]
        for num_before, k in enumerate(drafted):
            share = max(0, room) // (len(drafted) - num_before)
            text, draft = self.tickets[k].text, self.tickets[k].draft
            if share and draft is not None:
                guesses[k] = self.tickets[k].generator.guess(text, draft, max_tokens=share)
                room -= len(guesses[k].token_ids)
        return guesses

    def _read(self) -> None:
        chosen = self._choose_tokens()
        if not any(chosen):
            return  # all that were left have been cancelled meanwhile
        guesses = self._guess(chosen)
        read = [[*ids, *more.token_ids] for ids, more in zip(chosen, guesses, strict=True)]
        states = self._encoder.append(self._cache, read, _find_branches(chosen, guesses))
        needed: list[int] = []  # where something is checked, or chosen next
        begin = 0
        for ticket, ids in zip(self.tickets, read, strict=True):
            end = begin + len(ids)
            needed += range(end - bool(ids), end) if ticket.unread else range(begin, end)
            begin = end
        states = states[needed]
        logits = self._encoder.token_logits(states)  # once, for checks and for the next choices
        logits[:, self._unwritable] = -torch.inf
        end = 0
        for place, (ticket, ids, more) in enumerate(
            zip(self.tickets, chosen, guesses, strict=True)
        ):
            if not ids:
                continue
            num_kept = len(ids)
            if ticket.unread:
                ticket.unread = ticket.unread[num_kept:]
                end += 1
                last = end - 1
            else:
                assert ticket.draft is not None
                begin, end = end, end + len(ids)
                num_kept = self._verify(ticket, ticket.draft, logits[begin : end - 1])
                ticket.text.num_passes += 1
                last = begin + num_kept - 1
                behind = slice(end, end + len(more.token_ids))
                end = behind.stop
                if num_kept == len(ids) and more.token_ids:
                    ticket.ahead = Ahead(more, states[behind], logits[behind])
                else:
                    self._cache.cut(place, self._cache.lengths[place] - (end - 1 - last))
            if num_kept and not ticket.unread:
                ticket.ending = states[last], logits[last]

    def _verify(self, ticket: Ticket, draft: Draft, logits: Tensor) -> int:
        num_accepted: int = 1
        probabilities: Sequence[float] = ()
        if len(draft.token_ids) > 1:
            num_accepted, probabilities = verify_draft(
                logits, draft, ticket.text.request.decoding, first=1
            )
        return self._write(ticket, draft, num_accepted, probabilities)

    def _write(
        self, ticket: Ticket, draft: Draft, num_accepted: int, probabilities: Sequence[float]
    ) -> int:
        ticket.draft = None
        return ticket.generator.write(ticket.text, draft, num_accepted, probabilities)


def _find_branches(
    chosen: Sequence[Sequence[int]], guesses: Sequence[Guesses]
) -> dict[int, list[int]]:
    # what each token that is read follows, where guesses stand behind a draft
    return {
        row: [*range(-1, len(ids) - 1), *(len(ids) + parent for parent in more.parents)]
        for row, (ids, more) in enumerate(zip(chosen, guesses, strict=True))
        if more.token_ids
    }
