"""Kills builds at random moments, thousands of times, and looks at what is left after each.

``python -m tests.index.kill_driver FOLDER NUMBER SEED``: every build is a forked process, so that
nothing is imported again; the parent never opens LanceDB, which does not survive a fork. Half of
the builds are killed at a random touch of a file, half at a random moment, since Lance writes
without Python. Now and then a switch or a rollback is killed too. After each kill what is in place
and what is active are verified in another process: digest, words, and the text of every citation.
"""

import json
import os
import random
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import lancedb  # noqa: F401  imported once, opened only in children
import numpy as np

from cog.corpus.documents import digest_records
from cog.index.activation import get_kept, rollback_corpus, switch_corpus
from cog.index.reader import open_index
from cog.index.verify import verify_index
from cog.model.fingerprint import fingerprint_model
from cog.paths import ProjectPaths
from cog.progress import SilentProgress
from cog.registry import load_active
from tests.index.build_process import watch_files
from tests.index.hash_model import HashModel, build, make_documents, write_corpus

CORPUS = "village"
MAX_SECONDS = 120.0


def run_child(function: Callable[[], object], *, delay: float | None = None) -> int:
    """Run a function in a fork; its exit status, or minus the signal that ended it.

    :param function: What to run.
    :param delay: Seconds until it is killed; None: it is not.
    :returns: 0 if it ended well.
    """
    child = os.fork()
    if child == 0:
        status = 1
        try:
            function()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    deadline = time.monotonic() + (MAX_SECONDS if delay is None else delay)
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.001)


class Driver:
    """One project that is built, killed and checked again and again.

    :param project: The project, with a model folder and a card.
    :param seed: Seed of the moments.
    """

    def __init__(self, project: ProjectPaths, seed: int) -> None:
        self.project = project
        self.random = random.Random(seed)
        self.fingerprint = fingerprint_model(project.root / "models" / "tiny")
        self.counts: Counter[str] = Counter()
        self.durations: list[float] = []

    def build(self, kill_at: int = 0, note: Path | None = None) -> None:
        """Build in this process.

        :param kill_at: The touch of a file at which it is killed; 0: it is not.
        :param note: Where the number of touches goes.
        """
        touches = watch_files(str(self.project.root), kill_at)
        build(
            self.project.corpus(CORPUS),
            locks=self.project.locks,
            model=HashModel(fingerprint=self.fingerprint),
            get_kept=lambda: get_kept(self.project, CORPUS),
        )
        if note is not None:
            note.write_text(str(len(touches)))

    def switch(self, kill_at: int) -> None:
        """Switch or roll back in this process.

        :param kill_at: The touch of a file at which it is killed.
        """
        watch_files(str(self.project.root), kill_at)
        if kill_at % 2 and load_active(self.project) is not None:
            rollback_corpus(self.project)
        else:
            switch_corpus(self.project, CORPUS)

    def check(self, digests: set[str | None], note: Path) -> None:
        """Open and verify what is in place and what is active; a failure is an exception.

        :param digests: Versions to verify; None is the one in place.
        :param note: Where the digest in place goes.
        """
        for digest in digests:
            with open_index(
                self.project.corpus(CORPUS),
                locks=self.project.locks,
                corpus_id=CORPUS,
                model_fingerprint=self.fingerprint,
                documents_digest=None,
                digest=digest,
            ) as index:
                verify_index(index, progress=SilentProgress())
                ordinals = range(index.manifest.documents.num_indexed)
                documents = index.get_documents(ordinals)
                found = digest_records(documents[i] for i in ordinals)
                assert found == index.manifest.documents_digest, "other documents than stated"
                words = index.gather_chunks(np.arange(index.num_chunks))
                assert words.word_chars.min() >= 0
                if digest is None:
                    note.write_text(index.manifest.digest)

    def write_documents(self, number: int) -> None:
        """Give the corpus other documents: a few of them change from build to build.

        :param number: Which.
        """
        documents = make_documents(10 + number % 5)
        write_corpus(self.project.corpus(CORPUS), documents[number % 3 :])

    def run(self, num_kills: int) -> dict[str, object]:
        """Kill until so many processes were killed.

        :param num_kills: The number.
        :returns: Counts.
        """
        note = self.project.root.parent / "note"
        self.write_documents(0)
        began = time.monotonic()
        assert run_child(lambda: self.build(note=note)) == 0
        self.durations.append(time.monotonic() - began)
        touches = int(note.read_text())
        assert run_child(lambda: self.switch(0)) == 0
        number = 0
        while self.counts["killed"] < num_kills:
            number += 1
            if number % 4 == 1:  # else the next build goes on from what this one leaves
                self.write_documents(number)
            status = self._kill_once(number, touches)
            assert status in (0, -signal.SIGKILL), f"step {number} ended with {status}"
            self.counts["killed" if status else "whole"] += 1
            active = load_active(self.project)
            assert active is not None, "nothing is active any more"
            digests = {None, active.index}
            assert run_child(lambda wanted=digests: self.check(wanted, note)) == 0, (
                f"after step {number} an index is lost or damaged"
            )
            self.counts["verified"] += len(digests)
            if number % 3 == 0:
                began = time.monotonic()
                assert run_child(self.build) == 0, f"the build after step {number} fails"
                self.durations.append(time.monotonic() - began)
            if number % 7 == 0:
                assert run_child(lambda: self.switch(0)) == 0
        assert run_child(self.build) == 0
        folders = [path.name for path in self.project.corpus(CORPUS).index.iterdir()]
        assert len(folders) == 1, folders
        return dict(self.counts) | {"steps": number, "touches": touches}

    def _kill_once(self, number: int, touches: int) -> int:
        if number % 10 == 0:
            self.counts["switches"] += 1
            kill_at = self.random.randint(1, 30)
            return run_child(lambda: self.switch(kill_at))
        self.counts["builds"] += 1
        if number % 2:
            kill_at = self.random.randint(1, touches)
            return run_child(lambda: self.build(kill_at))
        longest = sorted(self.durations)[len(self.durations) // 2]
        return run_child(self.build, delay=self.random.uniform(0, longest))


def main() -> None:
    """Run the driver and print its counts as JSON."""
    project, num_kills, seed = ProjectPaths(Path(sys.argv[1])), int(sys.argv[2]), int(sys.argv[3])
    counts = Driver(project, seed).run(num_kills)
    sys.stdout.write(json.dumps(counts) + "\n")


if __name__ == "__main__":
    main()
