"""Encoding on a Ray cluster: batches go in, what its workers made of each comes out, once.

Workers only encode, and need the package and the model, but no folder in common: the process that
builds writes the rows, in order, as it writes those of its own threads. So a worker that is lost,
or a batch that is encoded twice, leaves nothing behind, and a build that was killed goes on as any.
"""

import itertools
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any

from cog.errors import CogError, IndexingError, IndexMismatchError, advise_on_writing
from cog.index.building.encoding import Args, Encoders, Pool, T
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
        )
    fingerprint = fingerprint_model(folder)
    if fingerprint != wanted.fingerprint:
        raise IndexMismatchError(
            f"a worker needs model {wanted.fingerprint[:16]} in {folder}",
            found=f"model {fingerprint[:16]}",
            run="copy the folder to every machine",
        )
    model = load_index_model(folder, device=wanted.device)
    if model.numerics != wanted.numerics:
        raise IndexMismatchError(
            f"workers must compute as the machine that builds does: {wanted.numerics}",
            found=model.numerics,
            run="start the build, and the cluster, on machines of one kind",
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
    is_ready: bool = False
    is_lost: bool = False


class RayPool:
    """Workers of a cluster; those that are lost are replaced, and what they had goes to others.

    There is a thread for each task that runs: it waits for a worker that is free, and for what that
    makes of the task.
    """

    task_pieces = TASK_PIECES

    def __init__(self, cluster: Cluster, wanted: WorkerModel, progress: Progress) -> None:
        self._cluster = cluster
        self._wanted = wanted
        self._progress = progress
        self._lock = Lock()
        self._workers: set[_Worker] = set()
        self._free: SimpleQueue[_Worker | None] = SimpleQueue()  # as often as it takes another task
        self._num_lost_starts = 0
        self._failure: CogError | None = None
        # a task may hold all that is done of a window; whichever is encoded next is in this many
        self.num_windows = cluster.num_workers + 1
        self._threads = ThreadPoolExecutor(TASKS_AT_ONCE * cluster.num_workers, "ray-pool")
        for _ in range(cluster.num_workers):
            Thread(target=self._start, daemon=True).start()

    def submit(self, method: Callable[[Encoders, *Args], T], *args: *Args) -> "Future[T]":
        """Have a worker call a method of its encoders."""
        return self._threads.submit(self._run, method, *args)

    def close(self) -> None:
        """Let all workers go."""
        self._fail(IndexingError("what encodes was let go"))
        for worker in tuple(self._workers):  # one that is lost goes meanwhile
            self._cluster.kill(worker.actor)
        self._threads.shutdown(cancel_futures=True)

    def _start(self) -> None:
        worker = _Worker(None, "of the cluster")
        try:
            with self._lock:
                if self._failure is not None:
                    return
                worker = _Worker(self._cluster.start(make_worker_class()))
                self._workers.add(worker)
            hello = worker.actor.hello.remote(self._wanted.version, pickle.dumps(self._wanted))
            self._greet(worker, self._cluster.get(hello))
        except Exception as error:  # who waits for a worker must not wait for ever
            self._num_lost_starts += 1
            self._settle(error, worker, is_last=self._num_lost_starts >= MAX_LOST_STARTS)

    def _greet(self, worker: _Worker, told: dict[str, str]) -> None:
        worker.name = told["name"]
        self._num_lost_starts = 0
        if told["found"]:
            self._fail(
                IndexMismatchError(
                    f"all workers must have copy-generator {self._wanted.version}",
                    found=f"{told['found']} on {worker.name}",
                    run=f"pip install 'copy-generator[ray]=={self._wanted.version}' there",
                )
            )
        elif told["error"]:
            self._fail(IndexMismatchError(f"worker {worker.name}: {told['error']}"))
        else:
            worker.is_ready = True
            for _ in range(TASKS_AT_ONCE):
                self._free.put(worker)

    def _run(self, *call: Any) -> Any:  # noqa: ANN401
        for number in itertools.count(1):
            worker = self._take()
            try:
                result = self._cluster.get(worker.actor.run.remote(*call))
            except Exception as error:
                self._settle(error, worker, is_last=number == MAX_TRIES)
            else:
                self._free.put(worker)
                return result

    def _take(self) -> _Worker:
        # the next free worker, as soon as there is one
        while self._failure is None:
            try:
                worker = self._free.get(timeout=START_SECONDS)
            except Empty:
                if not any(each.is_ready for each in tuple(self._workers)):
                    self._fail_without_workers()
                continue
            if worker is not None and not worker.is_lost:
                return worker
        self._free.put(None)  # for the next one that waits
        raise self._failure

    def _settle(self, error: Exception, worker: _Worker, *, is_last: bool) -> None:
        # what a worker fails at ends all; a worker that is lost is replaced, which the first of the
        # tasks that it had tells
        if self._cluster.is_of_task(error) or is_last:
            self._fail(self._explain(error, worker))
            return
        with self._lock:
            if worker.is_lost or self._failure is not None:
                return
            worker.is_lost = True
            self._workers.discard(worker)
        self._progress.say(f"{worker.name} is lost; another one takes over what it had")
        with suppress(Exception):  # it may only be out of reach, or was never there
            self._cluster.kill(worker.actor)
        Thread(target=self._start, daemon=True).start()

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
            )
        return IndexingError(
            f"worker {worker.name} must encode what it is given",
            found=f"{type(cause).__name__}: {detail}",
            run="ray logs, on that machine",
        )

    def _fail_without_workers(self) -> None:
        self._fail(
            IndexingError(
                f"a worker of the cluster must be ready within {START_SECONDS:.0f} seconds",
                found=f"none of {len(self._workers)}",
                run="ray status, which says what is free",
            )
        )

    def _fail(self, failure: CogError) -> None:
        # what is encoded is kept, and the next build goes on from it
        with self._lock:
            self._failure = self._failure or failure
        self._free.put(None)


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
