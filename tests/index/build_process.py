"""A build in a process of its own; ``--kill-at N`` kills it at its N-th touch of a file."""

import argparse
import re
import sys
from pathlib import Path

from cog.paths import CorpusPaths
from tests.index.hash_model import HashModel, build
from tests.killing import watch_files

COMMIT = re.compile(r"os\.rename .*/\.manifest\.json~[0-9a-f]+/new")


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--force", action="store_true")
    parser.add_argument("--fingerprint", default="a" * 64)
    parser.add_argument("--kill-at", type=int, default=0)
    words = parser.parse_args()
    import lance  # noqa: F401  before the watch begins

    say("ready")
    touches = watch_files(str(words.corpus), words.kill_at)
    report = build(
        CorpusPaths(words.corpus),
        model=HashModel(fingerprint=words.fingerprint),
        force=words.force,
    )
    (commit,) = (i for i, touch in enumerate(touches, 1) if COMMIT.fullmatch(touch))
    say(f"commit {commit} of {len(touches)} {report.manifest.digest}")


if __name__ == "__main__":
    main()
