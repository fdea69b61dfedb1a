"""A real Ray cluster of processes of this machine, and what is needed to kill them."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

# what a cluster and who connects to it have in common; else Ray makes one in the person's folder
TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0123456789abcdef" * 4}
WORKER = b"ray::Worker"  # what Ray calls the process of our class


@dataclass(frozen=True)
class TestCluster:
    __test__ = False
    address: str
    pid: int  # of what started it

    def find_workers(self) -> list[int]:
        """Processes that encode, or load what they encode with."""
        parents, workers = {}, []
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it ended meanwhile
                stat = (path / "stat").read_text()
                parents[int(path.name)] = int(stat.rpartition(")")[2].split()[1])
                if (path / "cmdline").read_bytes().startswith(WORKER):
                    workers.append(int(path.name))
        return sorted(pid for pid in workers if self._is_below(pid, parents))

    def _is_below(self, pid: int, parents: dict[int, int]) -> bool:
        while pid in parents and pid != self.pid:
            pid = parents[pid]
        return pid == self.pid


@contextmanager
def start_cluster(num_cpus: int = 2) -> Iterator[TestCluster]:
    """Start one as a person does, and end it and nothing else."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = (
        "start --head --block --disable-usage-stats --include-dashboard false "
        f"--node-ip-address 127.0.0.1 --port {port} --num-cpus {num_cpus} "
        f"--object-store-memory {200 << 20}"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "ray.scripts.scripts", *words.split()],
        cwd=Path(__file__).parents[2],
        env={
            **os.environ,
            **TOKEN,
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "RAY_worker_niceness": "0",  # else, on a busy machine, they wait for all others
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if b"Ray runtime started" in line:
                break
        yield TestCluster(f"127.0.0.1:{port}", process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
