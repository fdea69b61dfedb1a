"""The queue of texts: requests go in at any time, segments and generations come out as they come.

A text that ends makes room for the next one. What a text may copy from is retrieved and gathered on
a thread of its own while the others are written, so a pass never waits for a disk.
"""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from cog.closing import Closing
from cog.decoding.batch import Batch, Ticket
from cog.decoding.request import Request
from cog.decoding.workers import Workers
from cog.errors import CogError, GenerationError
from cog.model.load import CogModel
from cog.model.threads import start_single_threads
from cog.records import Generation, Segment

if TYPE_CHECKING:
    from cog.decoding.generator import CopyGenerator

PLACES_PER_AHEAD = 4  # places of a batch for each text whose pool is made before there is one
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Event:
    """What became of a text in a step.

    :param segments: Its new segments that nothing can change any more, if it is streamed.
    :param growing: The copy behind them, as far as it is written, if that became longer: what
        stands in it stays, but it may go on.
    :param generation: The whole, when it is finished.
    :param error: What ended it, if something did.
    """

    ticket: Ticket
    segments: tuple[Segment, ...] = ()
    growing: Segment | None = None
    generation: Generation | None = None
    error: CogError | None = None


class TextQueue(Closing):
    """Texts that come and go; those of all indexes and settings share each forward pass.

    Texts are submitted and cancelled from any thread; one thread steps, waits and closes.

    :param model: The model of all of them.
    :param batch_size: Number of texts that share a pass.
    :param is_steady: Whether a free place waits for the pool of the next text instead of a pass
        going on without it. Which texts share a pass, on which the last bits of their
        probabilities hang, is then the same in every run.
    :param say: Told once if the device has no room for as many.
    """

    def __init__(
        self, model: CogModel, *, batch_size: int, is_steady: bool = False, say: Say | None = None
    ) -> None:
        self._model, self._is_steady = model, is_steady
        self._num_places, self._say = batch_size, say
        self._workers = Workers(model.prefix_encoder.device)
        self._shared = Batch(model, self._workers)
        self._alone: dict[Ticket, Batch] = {}
        self._changed = threading.Condition()  # guards what waits
        self._waiting: deque[Ticket] = deque()
        self._begun: deque[Ticket] = (
            deque()
        )  # their jobs are running or done, or they were sent back
        # one on a GPU, which runs one thing after another
        num_threads = torch.get_num_threads() if model.prefix_encoder.device.type == "cpu" else 1
        self._background = start_single_threads(num_threads, "pools")

    def close(self) -> None:
        """Drop what is left, once nothing is read from an index any more."""
        with self._changed:
            self._waiting.clear()
        self._background.shutdown(cancel_futures=True)
        self._workers.close()
        self._begun.clear()
        self._shared = Batch(self._model, self._workers)
        self._alone.clear()

    @property
    def num_begun_at_once(self) -> int:
        """Number of texts that share passes, and of those whose pools are made meanwhile."""
        return self._num_places + self._num_places // PLACES_PER_AHEAD

    @property
    def num_running(self) -> int:
        """Number of texts that are being written."""
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        """Number of texts that were submitted and are not being written yet."""
        with self._changed:
            return len(self._waiting) + sum(not each.is_cancelled for each in self._begun)

    def is_using(self, generator: "CopyGenerator") -> bool:
        """Whether something here may still read from an index.

        It may not once all texts of the generator have ended, or were cancelled and let go.
        """
        with self._changed:
            tickets = (*self._waiting, *self._begun, *self._running)
        return any(ticket.generator is generator for ticket in tickets)

    def submit(
        self,
        generator: "CopyGenerator",
        request: Request,
        *,
        is_streamed: bool = False,
        is_alone: bool = False,
    ) -> Ticket:
        """Have a text written by a generator on the model of this queue.

        ``is_streamed`` says whether its segments are told as they come; ``is_alone`` whether it
        shares its passes with no other, so that the last bits of its probabilities, and with them
        the text, are those of a queue that holds nothing else. If its prefix or a setting cannot be
        used, it is a ``GenerationError``, and nothing is queued.
        """
        if generator.model.prefix_encoder is not self._model.prefix_encoder:
            raise ValueError("a queue writes with one model")
        generator.check(request)
        ticket = Ticket(generator, request, is_streamed, is_alone)
        with self._changed:
            self._waiting.append(ticket)
        self._begin_jobs()
        return ticket

    def cancel(self, ticket: Ticket) -> None:
        """Let go of a text; one that has ended already is left as it is."""
        with self._changed:
            ticket.is_cancelled = True
            if ticket in self._waiting:
                self._waiting.remove(ticket)
            self._changed.notify_all()

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Wait until a step has something to do (None: for ever), and say whether it has."""

        def is_ready() -> bool:
            return bool(self._running or self._begun and self._can_begin())

        with self._changed:
            return self._changed.wait_for(is_ready, timeout_seconds)

    def step(self) -> list[Event]:
        """Write on all texts, in one pass but for those alone, and take in those whose turn it is.

        With no text in the batch, the pool of the next one is waited for. Gives what became of
        which text.
        """
        events = self._admit()
        for batch in (self._shared, *self._alone.values()):
            self._pass(batch)
            events += [event for each in tuple(batch.tickets) for event in self._tell(each)]
        self._begin_jobs()  # for the places of those that ended
        return events

    @property
    def _running(self) -> list[Ticket]:
        return [*self._shared.tickets, *self._alone]

    def _join(self, ticket: Ticket) -> None:
        if ticket.is_alone:
            self._alone[ticket] = Batch(self._model, self._workers)
        self._alone.get(ticket, self._shared).join(ticket)

    def _leave(self, ticket: Ticket) -> None:
        self._alone.pop(ticket, self._shared).leave(ticket)

    def _can_begin(self) -> bool:
        # the next text, or none is there
        job = self._begun[0].job if self._begun else None
        return job is None or job.done()

    def _begin_jobs(self) -> None:
        with self._changed:
            while self._waiting and self.num_running + len(self._begun) < self.num_begun_at_once:
                ticket = self._waiting.popleft()
                ticket.job = self._background.submit(ticket.generator.begin, ticket.request)
                self._begun.append(ticket)
                ticket.job.add_done_callback(self._wake)

    def _wake(self, _job: object) -> None:
        with self._changed:
            self._changed.notify_all()

    def _admit(self) -> list[Event]:
        # let go of what was cancelled, and take in texts whose pools are made, in their order
        for ticket in [each for each in self._running if each.is_cancelled]:
            self._leave(ticket)
        events: list[Event] = []
        while self.num_running < self._num_places:
            with self._changed:
                if self._is_steady:
                    self._changed.wait_for(self._can_begin)
                elif not events:
                    self._changed.wait_for(lambda: self._running or self._can_begin())
                if not self._begun or not self._can_begin():
                    break
                ticket = self._begun.popleft()
            try:
                error = self._end_job(ticket)
            except torch.OutOfMemoryError:
                if self._put_back(ticket):
                    continue
                error = _find_no_room()
            if error is not None:
                events.append(Event(ticket, error=error))
            elif not ticket.is_cancelled:
                self._join(ticket)
        self._begin_jobs()
        return events

    @staticmethod
    def _end_job(ticket: Ticket) -> CogError | None:
        job, ticket.job = ticket.job, None
        if job is None or ticket.is_cancelled:
            return None
        try:
            ticket.row, ticket.seconds = job.result()
        except CogError as error:
            return error
        return None

    def _put_back(self, ticket: Ticket) -> bool:
        # what a text may copy from is made again when others have ended, if there are others
        with self._changed:
            if not (self._running or self._begun):
                return False
            self._waiting.appendleft(ticket)
        self._lower_places(max(1, self.num_running // 2))
        return True

    def _pass(self, batch: Batch) -> None:
        while batch.tickets:
            try:
                return batch.step()
            except torch.OutOfMemoryError:
                pass  # handled when the pass and what it held are gone
            self._make_room()

    def _make_room(self) -> None:
        running = self._running
        if len(running) == 1:
            if not self._alone.get(running[0], self._shared).shrink():
                running[0].error = _find_no_room()
            return
        self._lower_places(len(running) // 2)
        for ticket in reversed(running[self._num_places :]):
            self._leave(ticket)
            with self._changed:
                self._begun.appendleft(ticket)
        self._shared.shrink()

    def _lower_places(self, num_places: int) -> None:
        self._num_places = num_places
        if self._say is not None:
            self._say(
                f"the device is out of memory: {self._num_places} texts at a time from now on"
            )
            self._say = None

    def _tell(self, ticket: Ticket) -> list[Event]:
        # what the last pass made of a text
        generator, generation = ticket.generator, None
        segments: tuple[Segment, ...] = ()
        growing: Segment | None = None
        try:
            if ticket.is_over and ticket.error is None and not ticket.is_cancelled:
                generation = generator.finish(ticket.text, ticket.seconds)
            if ticket.is_streamed and ticket.error is None:
                segments, growing = generator.report(ticket.text)
        except CogError as error:
            ticket.error, generation = error, None
        if ticket.is_over:
            self._leave(ticket)
        if ticket.is_cancelled or not (segments or growing or generation or ticket.error):
            return []
        return [Event(ticket, segments, growing, generation, ticket.error)]


def _find_no_room() -> GenerationError:
    return GenerationError(
        "the device must have room for one text",
        found="out of memory",
        run="give a shorter prefix, lower --max-new-tokens, or use --device cpu",
    )
