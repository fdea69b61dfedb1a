"""Encoding on a Ray cluster: batches go in, what its workers made of each comes out, once.

Workers only encode, and need the package and the model, but no folder in common: the process that
builds writes the rows, in order, as it writes those of its own threads. So a worker that is lost,
or a batch that is encoded twice, leaves nothing behind, and a build that was killed goes on as any.
"""

import pickle
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, Concatenate

from cog.errors import CogError, IndexingError, IndexMismatchError, advise_on_writing
from cog.index.building.encoding import Encoders, P, Pool, T
from cog.index.building.ray_cluster import Cluster, connect
from cog.model.fingerprint import fingerprint_model
from cog.model.vector_code import VectorCodes
from cog.paths import get_shipped
from cog.progress import Progress
from cog.version import __version__

if TYPE_CHECKING:
    from cog.model.load import IndexModel

TASK_PIECES = 16384  # of the batches of a task: seconds of a core, a tenth of a second of a GPU
TASKS_AT_ONCE = 2  # of a worker, so that it never waits for the next
START_SECONDS = 600.0  # for the first worker to be ready: Python, torch and the model are loaded
MAX_TRIES = 8  # of one task, each with a worker that was lost
MAX_LOST_STARTS = 16  # one after the other


@dataclass(frozen=True, slots=True)
class WorkerModel:
    """What a worker loads, and what it must come to."""

    folder: Path  # of the model, where the build was begun
    fingerprint: str
    numerics: str
    device: str  # `cpu` or `cuda`
    vector_dtype: str
    codes: VectorCodes | None
    version: str = __version__  # of this package


def load_worker(wanted: WorkerModel) -> "tuple[IndexModel, Encoders]":
    """Load the encoders on a worker; a model that is not the same one is refused."""
    from cog.model.load import load_index_model

    folder, shipped = wanted.folder, get_shipped("models", wanted.folder.name)
    # a model of the package lies where the package lies, which is no place of the project
    if not folder.is_dir() and shipped.is_dir():
        folder = shipped
    if not folder.is_dir():
        raise IndexMismatchError(
            f"a worker needs the model in {folder}",
            found="no such folder",
            run="copy the folder to every machine, or use a disk that all of them share",
            about=str(folder),
        )
    fingerprint = fingerprint_model(folder)
    if fingerprint != wanted.fingerprint:
        raise IndexMismatchError(
            f"a worker needs model {wanted.fingerprint[:16]} in {folder}",
            found=f"model {fingerprint[:16]}",
            run="copy the folder to every machine",
            about=str(folder),
        )
    model = load_index_model(folder, device=wanted.device)
    if model.numerics != wanted.numerics:
        raise IndexMismatchError(
            f"workers must compute as the machine that builds does: {wanted.numerics}",
            found=model.numerics,
            run="start the build, and the cluster, on machines of one kind",
            about=model.numerics,
        )
    return model, Encoders(model.phrase_encoder, model.retriever, wanted.vector_dtype, wanted.codes)


def make_worker_class() -> type:
    """Make the class of a worker.

    A class inside a function is sent as code: a worker that has another version of the package, or
    none, runs it all the same, and says so.
    """

    class Worker:
        def hello(self, version: str, wanted: bytes) -> dict[str, str]:
            import os
            import pickle
            import socket

            told = {"name": f"{socket.gethostname()} (pid {os.getpid()})", "found": "", "error": ""}
            try:
                from cog.version import __version__ as found
            except ImportError:
                return told | {"found": "none"}
            if found != version:
                return told | {"found": found}
            from cog.errors import CogError
            from cog.index.building.ray_pool import load_worker

            try:
                model, self._encoders = load_worker(pickle.loads(wanted))
            except CogError as error:
                return told | {"error": str(error)}
            self._pinned = model.pin_threads()
            self._pinned.__enter__()  # for as long as the worker lives
            return told

        def run(self, method: Callable[..., object], *args: object) -> object:
            return method(self._encoders, *args)

    return Worker


@dataclass(slots=True, eq=False)
class _Worker:
    actor: Any
    name: str = "a worker"
    is_lost: bool = False


@dataclass(slots=True, eq=False)
class _Task:
    call: tuple[Any, ...]  # the method and its arguments
    result: "Future[Any]" = field(default_factory=Future)
    num_tries: int = 0


class RayPool:
    """Workers of a cluster; those that are lost are replaced, and what they had goes to others.

    One thread decides everything: what happens elsewhere is put into its queue.

    :param cluster: The cluster.
    :param wanted: What workers load.
    :param progress: Is told of workers that are lost.
    """

    task_pieces = TASK_PIECES

    def __init__(self, cluster: Cluster, wanted: WorkerModel, progress: Progress) -> None:
        self._cluster = cluster
        self._wanted = wanted
        self._progress = progress
        self._events: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._waiting: deque[_Task] = deque()
        self._free: deque[_Worker] = deque()  # as often as it takes another task
        self._workers: set[_Worker] = set()
        self._running: set[_Task] = set()
        self._num_lost_starts = 0
        self._failure: CogError | None = None
        # a task may hold all that is done of a window; whichever is encoded next is in this many
        self.num_windows = cluster.num_workers + 1
        for _ in range(cluster.num_workers):
            self._start_worker()
        self._thread = Thread(target=self._decide, name="ray-pool", daemon=True)
        self._thread.start()

    def submit(
        self, method: Callable[Concatenate[Encoders, P], T], /, *args: P.args, **named: P.kwargs
    ) -> "Future[T]":
        """Have a worker call a method of its encoders."""
        task = _Task((partial(method, **named) if named else method, *args))
        self._events.put(partial(self._add, task))
        return task.result

    def close(self) -> None:
        """Let all workers go."""
        self._events.put(None)
        self._thread.join()
        for worker in self._workers:
            self._cluster.kill(worker.actor)

    def _decide(self) -> None:
        while True:
            try:
                event = self._events.get(timeout=None if self._running else START_SECONDS)
            except Empty:
                if self._waiting:
                    self._fail_without_workers()
                continue
            if event is None:
                return
            try:
                event()
                while self._waiting and self._free:
                    self._assign(self._waiting.popleft(), self._free.popleft())
            except Exception as error:  # who waits for a result must not wait for ever
                self._fail(self._explain(error, _Worker(None, "of the cluster")))

    def _start_worker(self) -> None:
        worker = _Worker(self._cluster.start(make_worker_class()))
        self._workers.add(worker)
        greeting = worker.actor.hello.remote(self._wanted.version, pickle.dumps(self._wanted))
        self._when_done(greeting, partial(self._greet, worker))

    def _when_done(self, reference: Any, then: Callable[["Future[Any]"], None]) -> None:  # noqa: ANN401
        reference.future().add_done_callback(lambda done: self._events.put(partial(then, done)))

    def _greet(self, worker: _Worker, done: "Future[Any]") -> None:
        error = done.exception()
        if error is not None:
            self._num_lost_starts += 1
            if self._cluster.is_of_task(error) or self._num_lost_starts == MAX_LOST_STARTS:
                self._fail(self._explain(error, worker))
            else:
                self._replace(worker)
            return
        told = done.result()
        worker.name = told["name"]
        self._num_lost_starts = 0
        if told["found"]:
            self._fail(
                IndexMismatchError(
                    f"all workers must have copy-generator {self._wanted.version}",
                    found=f"{told['found']} on {worker.name}",
                    run=f"pip install 'copy-generator[ray]=={self._wanted.version}' there",
                    about=worker.name,
                )
            )
        elif told["error"]:
            self._fail(IndexMismatchError(f"worker {worker.name}: {told['error']}"))
        else:
            self._free.extend([worker] * TASKS_AT_ONCE)

    def _add(self, task: _Task) -> None:
        if self._failure is not None:
            task.result.set_exception(self._failure)
        else:
            self._waiting.append(task)

    def _assign(self, task: _Task, worker: _Worker) -> None:
        task.num_tries += 1
        self._running.add(task)
        reference = worker.actor.run.remote(*task.call)
        self._when_done(reference, partial(self._finish, worker, task))

    def _finish(self, worker: _Worker, task: _Task, done: "Future[Any]") -> None:
        self._running.discard(task)
        error = done.exception()
        if self._failure is not None:
            return
        if error is None:
            if not worker.is_lost:
                self._free.append(worker)
            task.result.set_result(done.result())
        elif self._cluster.is_of_task(error) or task.num_tries == MAX_TRIES:
            self._waiting.append(task)
            self._fail(self._explain(error, worker))
        else:
            self._waiting.appendleft(task)
            self._replace(worker)

    def _replace(self, worker: _Worker) -> None:
        if worker.is_lost:  # another of its tasks told so
            return
        worker.is_lost = True
        self._progress.say(f"{worker.name} is lost; another one takes over what it had")
        self._free = deque(each for each in self._free if each is not worker)
        self._workers.discard(worker)
        self._cluster.kill(worker.actor)  # it may only be out of reach
        self._start_worker()

    def _explain(self, error: BaseException, worker: _Worker) -> CogError:
        cause = getattr(error, "cause", None) or error
        if isinstance(cause, CogError):
            return IndexingError(f"worker {worker.name}: {cause}")
        detail = str(cause).strip().splitlines()[0] if str(cause).strip() else repr(cause)
        if isinstance(cause, OSError):
            return IndexingError(
                f"worker {worker.name} must be able to read and write its files",
                found=detail,
                run=advise_on_writing(cause),
                about=worker.name,
            )
        return IndexingError(
            f"worker {worker.name} must encode what it is given",
            found=f"{type(cause).__name__}: {detail}",
            run="ray logs, on that machine",
            about=worker.name,
        )

    def _fail_without_workers(self) -> None:
        self._fail(
            IndexingError(
                f"a worker of the cluster must be ready within {START_SECONDS:.0f} seconds",
                found=f"none of {len(self._workers)}",
                run="ray status, which says what is free",
                about=self._cluster.address,
            )
        )

    def _fail(self, failure: CogError) -> None:
        # what is encoded is kept, and the next build goes on from it
        self._failure = self._failure or failure
        for task in (*self._waiting, *self._running):
            task.result.set_exception(self._failure)
        self._waiting.clear()
        self._running.clear()


@contextmanager
def open_ray_pool(wanted: WorkerModel, *, address: str, progress: Progress) -> Iterator[Pool]:
    """Encode on a cluster: at an address, or one of this machine alone that ends with the block."""
    with connect(address, with_gpus=wanted.device == "cuda") as cluster:
        progress.say(f"{cluster.num_workers} workers are started on {cluster.name}")
        pool = RayPool(cluster, wanted, progress)
        try:
            yield pool
        finally:
            with suppress(Exception):  # a cluster that is gone has nothing to let go
                pool.close()
