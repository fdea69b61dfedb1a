"""Work in other processes: arguments go in, results come out in the same order, bounded.

Processes are spawned, so that nothing of a parent with threads or a GPU is copied; each ends when
its parent does, however that ends.
"""

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import connection, get_context, parent_process
from typing import Any, TypeVar

from cog.errors import TrainingError

Settings = TypeVar("Settings")
Argument = TypeVar("Argument")
Result = TypeVar("Result")

AHEAD_PER_WORKER = 3
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def iter_in_workers(
    make: Callable[[Settings], Callable[[Argument], Result]],
    settings: Settings,
    arguments: Iterable[Argument],
    *,
    num_workers: int,
) -> Generator[Result, None, None]:
    """Apply a function to arguments, in this process (0 workers) or in others.

    ``make`` makes it from the settings, once in each process, where it is found by name. Arguments
    are taken one at a time, as results are asked for, and results come in their order; at most
    three for each worker are under way or waiting. A worker that dies, as when memory runs out, is
    a ``TrainingError``.
    """
    if num_workers == 0:
        yield from map(make(settings), arguments)
        return
    with _single_threaded():
        executor = ProcessPoolExecutor(
            num_workers,
            mp_context=get_context("spawn"),
            initializer=_begin,
            initargs=(make, settings),
        )
    waiting: deque[Future[Result]] = deque()
    source = iter(arguments)
    try:
        while True:
            with _single_threaded():  # processes are started as work comes in
                while len(waiting) < AHEAD_PER_WORKER * num_workers:
                    try:
                        argument = next(source)
                    except StopIteration:
                        break
                    waiting.append(executor.submit(_apply, argument))
            if not waiting:
                return
            yield waiting.popleft().result()
    except BrokenProcessPool as error:
        raise TrainingError(
            "the worker processes must stay alive",
            found="one died; memory may have run out",
            run="try again with fewer --workers",
        ) from error
    finally:
        executor.shutdown(wait=False, cancel_futures=True)


@contextmanager
def _single_threaded() -> Iterator[None]:
    # libraries read these when they are loaded, which in a worker is before any function runs
    before = {name: os.environ.get(name) for name in THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


_FUNCTIONS: list[Callable[[Any], Any]] = []  # of a worker process: the one it was started for


def _begin(make: Callable[[Settings], Callable[[Any], Any]], settings: Settings) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to end
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    threading.Thread(target=_follow_parent, daemon=True).start()
    _FUNCTIONS.append(make(settings))


def _apply(argument: Any) -> Any:  # noqa: ANN401
    return _FUNCTIONS[0](argument)


def _follow_parent() -> None:
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
