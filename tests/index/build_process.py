"""A build in a process of its own; with ``--kill-at N`` it is killed at its N-th touch of a file."""

import argparse
import os
import signal
import sys
from pathlib import Path

from cog.paths import CorpusPaths
from tests.index.hash_model import HashModel, build

WATCHED = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate", "shutil.rmtree"}


def watch_files(root: str, kill_at: int) -> None:
    """Kill this process at its n-th touch of a file below a folder.

    :param root: The folder.
    :param kill_at: Which touch; 0 for never.
    """
    touches = 0

    def count(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal touches
        if event in WATCHED and any(str(each).startswith(root) for each in arguments[:2]):
            touches += 1
            if touches == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus", type=Path)
    parser.add_argument("locks", type=Path)
    parser.add_argument("--force", action="store_true")
    parser.add_argument("--fingerprint", default="a" * 64)
    parser.add_argument("--kill-at", type=int, default=0)
    words = parser.parse_args()
    import lancedb  # noqa: F401  before the watch begins

    print("ready", flush=True)
    watch_files(str(words.corpus), words.kill_at)
    report = build(
        CorpusPaths(words.corpus),
        locks=words.locks,
        model=HashModel(fingerprint=words.fingerprint),
        force=words.force,
    )
    print(report.manifest.digest, flush=True)


if __name__ == "__main__":
    main()
