"""Threads: how many a pass runs on, how many encoders run at once, those of one core each."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor

Result = TypeVar("Result")
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


@torch.inference_mode()
def infer(work: Callable[[], Result]) -> Result:
    """Do something on another thread without gradients: the mode holds for a thread alone."""
    return work()


@dataclass(slots=True)
class _Pace:
    # how fast passes of a size were
    num_passes: int = 0
    seconds: dict[bool, float] = field(default_factory=dict)  # by whether on one thread

    def add(self, is_single: bool, seconds: float) -> None:
        known = self.seconds.get(is_single, seconds)
        self.seconds[is_single] = known + RECENT * (seconds - known)


class PaceSetter:
    """Runs passes on all of torch's threads or on one, whichever was faster lately.

    A pass is a hundred short products, and at the end of each its threads wait for the slowest.
    Alone on a machine they share the work; beside others they lose more than that. Which it is
    changes, so passes of about the same size are timed. What is written may not depend on it: the
    first pass of a size runs on both, and if any bit differs, all threads are used from then on.

    The clock gives seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._paces: dict[Size, _Pace] = {}
        self._single: ThreadPoolExecutor | None = None
        self._is_exact = True

    def run(self, kind: str, num_tokens: int, run_pass: Callable[[], Tensor]) -> Tensor:
        """Run a pass over some tokens, or another kind of work, which may be done twice."""
        if not self._is_exact or num_tokens > MAX_PACED or torch.get_num_threads() == 1:
            return run_pass()
        pace = self._paces.setdefault((kind, num_tokens.bit_length()), _Pace())
        if not pace.seconds:
            shared = self._time(run_pass, pace, is_single=False)
            single = self._time(run_pass, pace, is_single=True)
            self._is_exact = torch.equal(shared, single)
            return shared
        pace.num_passes += 1
        is_probe = pace.num_passes % PROBE_PASSES == 0
        is_single = (pace.seconds[True] < pace.seconds[False]) != is_probe
        return self._time(run_pass, pace, is_single=is_single)

    def _time(self, run_pass: Callable[[], Tensor], pace: _Pace, *, is_single: bool) -> Tensor:
        if is_single and self._single is None:
            # a thread of its own, since what is set for this one spreads to those that begin
            self._single = start_single_threads(1, "pass")
        began = self._clock()
        if is_single and self._single is not None:
            result = self._single.submit(infer, run_pass).result()
        else:
            result = run_pass()
        pace.add(is_single, self._clock() - began)
        return result
