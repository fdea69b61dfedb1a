"""The only module that imports Ray: an address goes in, a cluster comes out."""

import os
import socket
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from typing import Any

from cog.errors import IndexingError

ADDRESS = "RAY_ADDRESS"  # Ray's own name for where the cluster is
AUTO = "auto"
CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 60.0
# in a process of its own, since Ray tries for minutes, and then ends the process
TRY = "import sys, ray; ray.init(sys.argv[1], logging_level='ERROR', log_to_driver=False)"


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster that this process is connected to."""

    address: str  # empty for one of this machine alone
    num_workers: int
    options: dict[str, Any]  # of a worker

    @property
    def name(self) -> str:
        """What a person calls it."""
        return f"the cluster at {self.address}" if self.address else "this machine"

    def start(self, kind: type) -> Any:  # noqa: ANN401
        """Start a worker of a class; it waits until the cluster has room."""
        import ray

        return ray.remote(**self.options)(kind).remote()

    def get(self, reference: Any) -> Any:  # noqa: ANN401
        """Wait for what a worker was asked for."""
        import ray

        return ray.get(reference)

    def kill(self, worker: Any) -> None:  # noqa: ANN401
        """End a worker."""
        import ray

        ray.kill(worker)

    def is_of_task(self, error: BaseException) -> bool:
        """Whether the work failed, and not who did it."""
        from ray.exceptions import RayError, RayTaskError

        return isinstance(error, RayTaskError) or not isinstance(error, RayError)


@contextmanager
def connect(address: str, *, with_gpus: bool) -> Iterator[Cluster]:
    """Connect to a cluster: a worker for each GPU, or for each core.

    The address is ``HOST:PORT``, ``auto`` for the cluster of this machine, or empty: then it is
    what RAY_ADDRESS says, else a cluster of this machine alone, which ends with the block.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it tells its makers else
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    import ray

    address = address or os.environ.get(ADDRESS, "")
    if address:
        _check_answer(address)
    own = {} if address else {"include_dashboard": False}
    # Ray says on stdout, where results go, why workers died, and some of it only when it ends
    with redirect_stdout(sys.stderr):
        try:
            with warnings.catch_warnings():
                # its processes are forks that become another program at once, whatever Lance says
                warnings.simplefilter("ignore")
                ray.init(address or "local", logging_level="ERROR", log_to_driver=False, **own)
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            raise _unreachable(address, str(error).splitlines()[0]) from error
        try:
            kind = "GPU" if with_gpus else "CPU"
            num_workers = int(ray.cluster_resources().get(kind, 0))
            if not num_workers:
                raise IndexingError(f"the cluster needs a {kind}", found="none", run="ray status")
            options = {"num_cpus": 0 if with_gpus else 1, "num_gpus": int(with_gpus)}
            options |= {"max_restarts": 0, "max_task_retries": 0}  # whoever uses them sees to that
            yield Cluster(address, num_workers, options)
        finally:
            ray.shutdown()


def _check_answer(address: str) -> None:
    host, _, port = address.rpartition(":")
    if address != AUTO:
        if not host or not port.isdigit() or "://" in address:
            raise IndexingError(
                "the address of a cluster is HOST:PORT or auto", found=repr(address)
            )
        try:
            socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()
        except (OSError, OverflowError) as error:
            raise _unreachable(address, str(error)) from error
    try:
        done = subprocess.run(
            [sys.executable, "-c", TRY, address],
            capture_output=True,
            text=True,
            timeout=ANSWER_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _unreachable(address, f"no answer in {ANSWER_SECONDS:.0f} seconds") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no answer"]
        raise _unreachable(address, lines[-1])


def _unreachable(address: str, found: str) -> IndexingError:
    return IndexingError(
        f"a Ray cluster must answer at {address}" if address else "Ray must start on this machine",
        found=found,
        run="ray start --head --port 6379 there, or leave out --address" if address else "",
    )
