"""Threads: how many a pass runs on, how many encoders run at once, those of one core each."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import torch
from torch import Tensor

Size = tuple[str, int]  # kind of work, and bits of the number of tokens
RECENT = 0.2  # weight of the last pass in what is known of those of its size
MAX_PACED = 63  # tokens; more are worth sharing in any case
PROBE_PASSES = 32  # of a size, after which the slower number of threads is tried again


@contextmanager
def pin_threads(device: torch.device) -> Iterator[int]:
    """Let every operation run on one thread while the block runs; texts are encoded side by side.

    A product of matrices that is shared out among threads is summed in an order that depends on the
    size of the batch, so the last bits of a vector would depend on what it is encoded with. Gives
    the number of threads that may encode at once.
    """
    num_threads = torch.get_num_threads()
    if device.type != "cpu":
        yield 1
        return
    torch.set_num_threads(1)
    try:
        yield num_threads
    finally:
        torch.set_num_threads(num_threads)


def start_single_threads(count: int, name: str) -> ThreadPoolExecutor:
    """Start threads on each of which torch multiplies on one core.

    Torch gives the number that was set last, on whatever thread, to every thread that asks or
    multiplies for the first time: these ask before theirs is set, and then it is set back.
    """
    num_threads, are_ready = torch.get_num_threads(), threading.Barrier(count + 1)

    def begin() -> None:
        torch.get_num_threads()
        torch.set_num_threads(1)
        are_ready.wait()

    pool = ThreadPoolExecutor(count, thread_name_prefix=name, initializer=begin)
    for _ in range(count):
        pool.submit(int)  # each starts a thread, since those before wait for all
    are_ready.wait()
    torch.set_num_threads(num_threads)
    return pool


def describe_numerics(device: torch.device) -> str:
    """Name what decides a vector's last bits: device, instruction set or card, torch's version."""
    version = torch.__version__.split("+")[0]
    if device.type == "cuda":
        return f"cuda {torch.cuda.get_device_name(device)} torch {version}"
    return f"{device.type} {torch.backends.cpu.get_cpu_capability()} torch {version}"


class PaceSetter:
    """Runs passes on all of torch's threads or on one, whichever was faster lately.

    A pass is a hundred short products, and at the end of each its threads wait for the slowest.
    Alone on a machine they share the work; beside others they lose more than that. Which it is
    changes, so passes of about the same size are timed. What is written may not depend on it: the
    first pass of a size runs on both, and if any bit differs, all threads are used from then on.
    """

    def __init__(self) -> None:
        self._seconds: dict[Size, dict[bool, float]] = {}  # by whether it was one thread
        self._num_passes: dict[Size, int] = {}
        self._single: ThreadPoolExecutor | None = None
        self._is_exact = True

    def run(self, kind: str, num_tokens: int, run_pass: Callable[[], Tensor]) -> Tensor:
        """Run a pass over some tokens, or another kind of work, which may be done twice."""
        if not self._is_exact or num_tokens > MAX_PACED or torch.get_num_threads() == 1:
            return run_pass()
        size = kind, num_tokens.bit_length()
        seconds = self._seconds.setdefault(size, {})
        self._num_passes[size] = self._num_passes.get(size, -1) + 1
        if not seconds:
            shared = self._time(run_pass, seconds, is_single=False)
            single = self._time(run_pass, seconds, is_single=True)
            self._is_exact = torch.equal(shared, single)
            return shared
        is_probe = self._num_passes[size] % PROBE_PASSES == 0
        return self._time(run_pass, seconds, is_single=(seconds[True] < seconds[False]) != is_probe)

    def _time(
        self, run_pass: Callable[[], Tensor], seconds: dict[bool, float], *, is_single: bool
    ) -> Tensor:
        began = time.perf_counter()
        if is_single:
            # a thread of its own, since what is set for this one spreads to those that begin
            self._single = self._single or start_single_threads(1, "pass")
            result = self._single.submit(run_pass).result()
        else:
            result = run_pass()
        spent = time.perf_counter() - began
        known = seconds.get(is_single, spent)
        seconds[is_single] = known + RECENT * (spent - known)
        return result
