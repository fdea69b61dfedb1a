"""A queue that writes one batch after another; stands in for that of cog.decoding."""

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from cog.decoding.generator import CopyGenerator
from cog.decoding.request import Request, check_request
from cog.errors import CogError
from cog.records import Generation, Segment


@dataclass(frozen=True, slots=True, eq=False)
class Ticket:
    """A text that was asked for."""

    generator: CopyGenerator
    request: Request
    is_streamed: bool


@dataclass(frozen=True, slots=True)
class Event:
    """What became known of a text."""

    ticket: Ticket
    segments: Sequence[Segment] = ()
    generation: Generation | None = None
    error: CogError | None = None


class TextQueue:
    """Writes texts in batches."""

    def __init__(self, encoder: object, *, batch_size: int, say: object = None) -> None:
        self._batch_size = batch_size
        self._condition = threading.Condition()
        self._waiting: deque[Ticket] = deque()
        self._running: list[Ticket] = []

    @property
    def num_running(self) -> int:
        """Texts in the batch."""
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        """Texts that wait."""
        return len(self._waiting)

    def submit(
        self, generator: CopyGenerator, request: Request, *, is_streamed: bool = False
    ) -> Ticket:
        """Add a text."""
        check_request(request, generator.model.prefix_encoder)
        ticket = Ticket(generator, request, is_streamed)
        with self._condition:
            self._waiting.append(ticket)
            self._condition.notify()
        return ticket

    def cancel(self, ticket: Ticket) -> None:
        """Take a text out."""
        with self._condition:
            if ticket in self._waiting:
                self._waiting.remove(ticket)
            elif ticket in self._running:
                self._running.remove(ticket)

    def is_using(self, generator: CopyGenerator) -> bool:
        """Whether texts are written with it."""
        with self._condition:
            return any(each.generator is generator for each in (*self._waiting, *self._running))

    def wait(self, timeout_seconds: float) -> bool:
        """Sleep until there is something to do."""
        with self._condition:
            self._condition.wait_for(lambda: bool(self._waiting), timeout_seconds)
            return bool(self._waiting)

    def step(self) -> list[Event]:
        """Write a batch."""
        with self._condition:
            if not self._waiting:
                return []
            first = self._waiting[0].generator
            batch = [each for each in self._waiting if each.generator is first][: self._batch_size]
            for each in batch:
                self._waiting.remove(each)
            self._running = list(batch)
        events: list[Event] = []
        try:
            generations = first.generate(
                [each.request for each in batch],
                on_segment=lambda i, segment: events.append(Event(batch[i], (segment,))),
            )
            events = [each for each in events if each.ticket.is_streamed]
            events += [Event(t, generation=g) for t, g in zip(batch, generations, strict=True)]
        except CogError as error:
            events = [Event(each, error=error) for each in batch]
        with self._condition:
            events = [each for each in events if each.ticket in self._running]
            self._running = []
        return events

    def close(self) -> None:
        """Drop everything."""
        self._waiting.clear()
