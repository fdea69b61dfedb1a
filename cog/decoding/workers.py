"""Work that is independent for each text of a batch: jobs go in, and run side by side."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch

from cog.model.threads import infer, start_single_threads

Job = Callable[[], None]


class Workers:
    """Runs jobs on as many threads as torch may use, one thread each.

    A job of a few milliseconds gains little from being cut up among threads, and on a busy machine
    waits at every cut; whole jobs side by side gain all of it. So one that is alone has one thread,
    too. On a GPU jobs run one after another.
    """

    def __init__(self, device: torch.device) -> None:
        self._is_cpu = device.type == "cpu"
        self._pool: ThreadPoolExecutor | None = None

    def run(self, jobs: Sequence[Job]) -> None:
        """Run jobs, of which none depends on another, and wait for all of them."""
        num_threads = torch.get_num_threads()
        if num_threads == 1 or not self._is_cpu:
            for job in jobs:
                job()
            return
        if self._pool is None:
            self._pool = start_single_threads(num_threads, "decode")
        for _ in self._pool.map(infer, jobs):
            pass

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()
