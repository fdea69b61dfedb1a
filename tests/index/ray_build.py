"""A build on a Ray cluster; as a process of its own it kills itself when so much is done.

``python -m tests.index.ray_build CORPUS LOCKS MODEL ADDRESS WORDS``: after so many words it is
killed; at 0 it prints the digest, and how many chunks it encoded.
"""

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

from cog.index.building.builder import BuildReport, build_index
from cog.index.building.encoding import OpenPool, open_local_pool
from cog.index.building.ray_pool import WorkerModel, open_ray_pool
from cog.index.versions.folders import Keep
from cog.model.load import IndexModel, load_index_model
from cog.paths import CorpusPaths
from cog.progress import Progress
from tests.index.hash_model import PARAMS
from tests.told import Told

load_once = cache(load_index_model)


class Doing(Told):
    """Progress that does something once, when so many words are done."""

    def __init__(self, amount: int, action: Callable[[], object]) -> None:
        super().__init__()
        self._at = amount
        self._action = action

    def advance(self, amount: int) -> None:
        super().advance(amount)
        if self._at and self.amount >= self._at:
            self._at = 0
            self._action()


def describe_worker(model: IndexModel, folder: Path) -> WorkerModel:
    """What workers load of a model."""
    return WorkerModel(
        folder,
        fingerprint=model.fingerprint,
        numerics=model.numerics,
        device="cpu",
        vector_dtype=PARAMS.vector_dtype,
        codes=None,
    )


def build_on(
    corpus: CorpusPaths,
    *,
    model_folder: Path,
    address: str | None,
    progress: Progress | None = None,
    **changes: object,
) -> BuildReport:
    """Build on a cluster, or on this machine without an address."""
    told = progress or Told()
    model = load_once(model_folder)
    wanted = replace(describe_worker(model, model_folder), **changes)  # type: ignore[arg-type]
    open_pool: OpenPool = open_local_pool
    if address is not None:

        def open_pool(*_: object):  # type: ignore[no-untyped-def]  # noqa: ANN202
            return open_ray_pool(wanted, address=address, progress=told)

    return build_index(
        corpus,
        model_fingerprint=model.fingerprint,
        load_model=lambda: model,
        params=replace(PARAMS, commit_chunks=64),
        progress=told,
        get_kept=lambda: Keep(frozenset(), 0),
        open_pool=open_pool,
    )


def main() -> None:
    """Build as the command line says."""
    corpus, model_folder = (Path(each) for each in sys.argv[1:3])
    manifest = build_on(
        CorpusPaths(corpus),
        model_folder=model_folder,
        address=sys.argv[3],
        progress=Doing(int(sys.argv[4]), lambda: os.kill(os.getpid(), signal.SIGKILL)),
    ).manifest
    sys.stdout.write(f"{manifest.digest} {manifest.num_encoded}\n")


if __name__ == "__main__":
    main()
