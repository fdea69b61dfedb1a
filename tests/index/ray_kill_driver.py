"""Kills workers and drivers of builds on a Ray cluster at random moments; looks at what is left.

``python -m tests.index.ray_kill_driver FOLDER NUMBER SEED``: one cluster of two workers, and one
build after the other on it, each a process of its own that goes on from what the one before left.
Every kill is SIGKILL, of one worker or of the driver, at a random moment. Now and then the corpus
gets other documents. Each build that ends must have the digest of a build on this machine, and be
whole: every document and chunk is there once.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from cog.index.read.reader import open_index
from cog.index.read.verify import verify_index
from cog.paths import CorpusPaths
from cog.progress import SILENT
from tests.index.hash_model import make_documents, write_corpus
from tests.index.ray_build import build_on
from tests.index.ray_cluster import TOKEN, TestCluster, start_cluster
from tests.model_fixtures import make_tiny_model

KILL_SECONDS = 4.0  # between two kills, at most
DRIVER_SHARE = 0.25  # of the kills
MAX_KILLS = 6  # of one build, so that some end
NUM_DOCUMENTS = 300


class Killer:
    """One corpus that is built, and killed, again and again.

    :param root: An empty folder.
    :param cluster: The cluster.
    :param seed: Seed of the moments.
    """

    def __init__(self, root: Path, cluster: TestCluster, seed: int) -> None:
        self.root = root
        self.cluster = cluster
        self.random = random.Random(seed)
        self.model = make_tiny_model(root / "model")
        self.counts: Counter[str] = Counter()

    def run(self, num_kills: int) -> dict[str, int]:
        """Kill so often, and build to the end now and then."""
        number = 0
        while self.counts["workers"] + self.counts["drivers"] < num_kills:
            number += 1
            corpus = CorpusPaths(self.root / f"corpora-{number}" / "tiny")
            write_corpus(corpus, make_documents(NUM_DOCUMENTS + number))
            wanted = self._build_here(corpus)
            found = ""
            while not found:
                kills = self.counts["workers"] + self.counts["drivers"]
                found = self._build_on_cluster(corpus, num_kills - kills)
            assert found == wanted, f"corpus {number} is another one"
            with open_index(corpus) as index:
                report = verify_index(index, progress=SILENT)
            assert (report.digest, report.num_documents) == (wanted, NUM_DOCUMENTS + number)
            self.counts["verified"] += 1
        return dict(self.counts)

    def _build_here(self, corpus: CorpusPaths) -> str:
        local = CorpusPaths(corpus.root.parent / "local" / "tiny")
        local.root.mkdir(parents=True)
        local.documents.write_bytes(corpus.documents.read_bytes())
        local.prompts.write_bytes(corpus.prompts.read_bytes())
        return build_on(local, model_folder=self.model, address=None).manifest.digest

    def _build_on_cluster(self, corpus: CorpusPaths, num_kills: int) -> str:
        # its digest, or nothing if it was killed
        words = [str(each) for each in (corpus.root, self.model)]
        driver = subprocess.Popen(
            [sys.executable, "-m", "tests.index.ray_build", *words, self.cluster.address, "0"],
            cwd=Path(__file__).parents[2],
            env={**os.environ, **TOKEN},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        num_kills = min(num_kills, self.random.randint(0, MAX_KILLS))
        while driver.poll() is None:
            time.sleep(self.random.uniform(0.05, KILL_SECONDS))
            workers = self.cluster.find_workers()
            if not workers or num_kills <= 0 or driver.poll() is not None:
                continue
            num_kills -= 1
            if self.random.random() < DRIVER_SHARE:
                driver.kill()
                self.counts["drivers"] += 1
            else:
                with suppress(ProcessLookupError):
                    os.kill(self.random.choice(workers), signal.SIGKILL)
                    self.counts["workers"] += 1
        output, errors = driver.communicate()
        self.counts["builds"] += 1
        sys.stderr.write(f"{dict(self.counts)}\n")
        if driver.returncode == -signal.SIGKILL:
            return ""
        if "must encode what it is given" in errors:  # too many workers died one after the other
            self.counts["given up"] += 1
            return ""
        assert driver.returncode == 0, errors[-3000:]
        (line,) = output.splitlines()  # nothing but the result
        return line.split()[0]


def main() -> None:
    """Run, and print the counts as JSON."""
    root, num_kills, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    with start_cluster() as cluster:
        counts = Killer(root, cluster, seed).run(num_kills)
    sys.stdout.write(json.dumps(counts) + "\n")


if __name__ == "__main__":
    main()
