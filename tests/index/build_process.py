"""A build in a process of its own; ``--kill-at N`` kills it at its N-th touch of a file."""

import argparse
import os
import re
import signal
import sys
from pathlib import Path

from cog.paths import CorpusPaths
from tests.index.hash_model import HashModel, build

WATCHED = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate", "shutil.rmtree"}
COMMIT = re.compile(r"os\.rename .*/\.manifest\.json\.\d+\.tmp")


def watch_files(root: str, kill_at: int) -> list[str]:
    """Kill this process at its n-th touch of a file below a folder.

    :param root: The folder.
    :param kill_at: Which touch; 0 for never.
    :returns: What is touched, as it happens; the last touch is not done yet.
    """
    touches: list[str] = []

    def count(event: str, arguments: tuple[object, ...]) -> None:
        if event in WATCHED and any(str(each).startswith(root) for each in arguments[:2]):
            touches.append(f"{event} {arguments[0]}")
            if len(touches) == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
    return touches


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus", type=Path)
    parser.add_argument("locks", type=Path)
    parser.add_argument("--force", action="store_true")
    parser.add_argument("--fingerprint", default="a" * 64)
    parser.add_argument("--kill-at", type=int, default=0)
    words = parser.parse_args()
    import lancedb  # noqa: F401  before the watch begins

    say("ready")
    touches = watch_files(str(words.corpus), words.kill_at)
    report = build(
        CorpusPaths(words.corpus),
        locks=words.locks,
        model=HashModel(fingerprint=words.fingerprint),
        force=words.force,
    )
    (commit,) = (i for i, touch in enumerate(touches, 1) if COMMIT.fullmatch(touch))
    say(f"commit {commit} of {len(touches)} {report.manifest.digest}")


if __name__ == "__main__":
    main()
