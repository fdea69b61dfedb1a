"""Threads: how many encoders run at once, and those that multiply on one core each."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import torch


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
