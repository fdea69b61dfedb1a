"""The engine: texts that are asked for go in, events of them come out, on one thread.

One model is in memory. The thread runs the queue; requests are handled elsewhere, and hear of their
texts through a function that they give.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from cog.decoding.batch import Ticket
from cog.decoding.generator import CopyGenerator
from cog.decoding.licences import CopyRule
from cog.decoding.queue import Event, TextQueue
from cog.decoding.request import Request
from cog.errors import CogError, NothingActiveError, ServeError
from cog.index.versions.activation import get_active_model
from cog.model.load import CogModel, load_model
from cog.params import Params, load_params
from cog.paths import ProjectPaths
from cog.registry import load_active
from cog.serve.indexes import OpenIndexes, Version
from cog.serve.metrics import Metrics
from cog.serve.settings import ServeSettings

IDLE_SECONDS = 0.5
FIRST_GUESS_SECONDS = 5.0  # of a text, before one was written

Deliver = Callable[[int, Event], None]
logger = logging.getLogger("cog.serve")


class QueueFullError(ServeError):
    """As many texts wait as may; it is worth asking again after some seconds."""

    def __init__(self, seconds: int, *, found: str) -> None:
        self.seconds = seconds
        super().__init__(
            "a place in the queue is needed", found=found, run=f"ask again in {seconds} seconds"
        )


class StoppingError(ServeError):
    """The server ends, and takes no more requests."""


@dataclass(slots=True, eq=False)
class Job:
    """The texts of one request."""

    version: Version  # what they are written from
    # called on the engine's thread with the number of a text and what became known
    deliver: Deliver
    # what the queue calls them, by number; those that ended are taken out
    tickets: dict[Ticket, int] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)  # when it was asked for
    has_begun: bool = False


class Engine:
    """Writes the texts of all requests, together."""

    def __init__(
        self, paths: ProjectPaths, params: Params, *, settings: ServeSettings, device: str = "auto"
    ) -> None:
        self.paths = paths
        self.settings = settings
        self.metrics = Metrics()
        self._params = params
        self._params_time = paths.params.stat().st_mtime_ns
        self.model = _load(paths, params, device=device)
        self._queue = TextQueue(self.model, batch_size=settings.batch_size, say=logger.warning)
        self.indexes = OpenIndexes(
            paths, self.model, max_open=settings.max_indexes, is_using=self._queue.is_using
        )
        self._lock = threading.Lock()
        self._jobs: dict[Ticket, Job] = {}
        self._text_seconds = FIRST_GUESS_SECONDS
        self._stop = threading.Event()
        self.is_stopping = False
        self.failure: ServeError | None = None  # what ended the thread, if something did
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    @property
    def params(self) -> Params:
        """The parameters, read again when their file is another one."""
        time_ns = self.paths.params.stat().st_mtime_ns
        if time_ns != self._params_time:
            self._params, self._params_time = load_params(self.paths.params), time_ns
        return self._params

    @property
    def num_running(self) -> int:
        """Number of texts that are being written."""
        return self._queue.num_running

    @property
    def num_waiting(self) -> int:
        """Number of texts that wait for a place."""
        return self._queue.num_waiting

    def warm(self) -> None:
        """Open what is active, so that the first request need not."""
        try:
            version = self.indexes.resolve(None)
            self.indexes.open(version, CopyRule())
            self.indexes.release(version)
        except NothingActiveError:
            pass
        except CogError as error:
            logger.warning("what is active cannot be served: %s", error)

    def submit(
        self,
        version: Version,
        generator: CopyGenerator,
        requests: Sequence[Request],
        *,
        is_streamed: bool,
        is_alone: bool = False,
        deliver: Deliver,
    ) -> Job:
        """Ask for texts; what was opened for them is released when the last has ended.

        ``is_alone``: each text shares its passes with no other. ``deliver`` is called with the
        number of a text and each of its events. If a request cannot be used, or there is no place,
        nothing is queued.
        """
        job = Job(version, deliver)
        try:
            self._check_room(len(requests))
            for number, request in enumerate(requests):
                with self._lock:  # no event may come before its ticket is known
                    ticket = self._queue.submit(
                        generator, request, is_streamed=is_streamed, is_alone=is_alone
                    )
                    self._jobs[ticket] = job
                    job.tickets[ticket] = number
        except BaseException:
            self._take_out(job)
            self.indexes.release(version)
            raise
        return job

    def cancel(self, job: Job, *, outcome: str = "left") -> None:
        """Give up what is left of a request; its places are free within one step."""
        num_left = self._take_out(job)
        for _ in range(num_left):
            self.metrics.count_text(outcome)
        if num_left:
            self.indexes.release(job.version)

    def stop(self) -> None:
        """End the thread and close everything; texts that are left are dropped."""
        self.is_stopping = True
        self._stop.set()
        self._thread.join()
        self._queue.close()
        self.indexes.close()

    def _check_room(self, num_texts: int) -> None:
        if self.is_stopping or not self._thread.is_alive():
            raise StoppingError("the server must go on running", found="it is about to end")
        waiting = self._queue.num_waiting
        taken = self._queue.num_running + waiting
        # what is asked for at once may fill the places of texts that run, too
        places = self.settings.batch_size + self.settings.max_waiting
        if taken + num_texts > places:
            passes = 1 + waiting // self.settings.batch_size
            seconds = max(1, round(passes * self._text_seconds))
            found = f"{taken} of {places} taken, and {num_texts} asked for"
            raise QueueFullError(seconds, found=found)

    def _take_out(self, job: Job) -> int:
        with self._lock:
            tickets = list(job.tickets)
            job.tickets.clear()
            for ticket in tickets:
                self._jobs.pop(ticket, None)
        for ticket in tickets:
            self._queue.cancel(ticket)
        return len(tickets)

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                if not self._queue.wait(IDLE_SECONDS):
                    self.indexes.prune()
                    continue
                for event in self._queue.step():
                    self._pass_on(event)
        except BaseException as error:
            logger.exception("the engine is broken")
            self._fail(error)

    def _pass_on(self, event: Event) -> None:
        is_end = event.generation is not None or event.error is not None
        with self._lock:
            job = self._jobs.get(event.ticket)
            if job is None:  # its client went away
                return
            number = job.tickets[event.ticket]
            if is_end:
                del self._jobs[event.ticket], job.tickets[event.ticket]
            is_last = not job.tickets
        if (event.segments or event.growing) and not job.has_begun:
            job.has_begun = True
            self.metrics.count_first_segment(time.monotonic() - job.began)
        if event.generation is not None:
            self.metrics.count_text("written", event.generation)
            decode = event.generation.seconds.get("decode", 0.0) * self.settings.batch_size
            self._text_seconds += 0.1 * (decode - self._text_seconds)
        elif event.error is not None:
            self.metrics.count_text("failed")
        job.deliver(number, event)
        if is_last:
            self.indexes.release(job.version)

    def _fail(self, error: BaseException) -> None:
        self.is_stopping = True
        stated = ServeError(
            "the engine must run", found=f"{type(error).__name__}: {error}", run="cog serve"
        )
        self.failure = stated
        with self._lock:
            jobs = dict(self._jobs)
            self._jobs.clear()
        for ticket, job in jobs.items():
            job.deliver(job.tickets[ticket], Event(ticket, error=stated))


def _load(paths: ProjectPaths, params: Params, *, device: str) -> CogModel:
    # the model of what is active, so that it can be served; else the one of params.yaml
    folder = paths.model(params.model)
    try:
        active = load_active(paths)
        if active is not None:
            folder = get_active_model(paths, params, active)
    except CogError as error:
        logger.warning("what is active cannot be served: %s", error)
    return load_model(folder, device=device, precision=params.generate.precision)
