"""A real Ray cluster of processes of this machine, and what is needed to kill them."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
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
        below = {self.pid}
        found = []
        processes = sorted(int(path.name) for path in Path("/proc").glob("[0-9]*"))
        for pid in processes:  # parents come before their children
            try:
                stat = Path(f"/proc/{pid}/stat").read_text()
                name = Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                continue
            if int(stat.rpartition(")")[2].split()[1]) in below:
                below.add(pid)
                found += [pid] if name.startswith(WORKER) else []
        return found

    def wait_for_workers(self, number: int) -> list[int]:
        """Wait until so many are there."""
        deadline = time.monotonic() + 120
        while len(found := self.find_workers()) < number:
            assert time.monotonic() < deadline, "no worker comes"
            time.sleep(0.05)
        return found


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
        env={**os.environ, **TOKEN, "PYTHONPATH": str(Path(__file__).parents[2])},
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
