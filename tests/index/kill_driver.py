"""Kills builds at random moments, thousands of times, and looks at what is left after each.

``python -m tests.index.kill_driver FOLDER NUMBER SEED``: every build is a forked process, so that
nothing is imported again; the parent never opens Lance, which does not survive a fork. Half of
the builds are killed at a random touch of a file, half at a random moment, since Lance writes
without Python. Now and then a switch or a rollback is killed too. After each kill what is in place
and what is active are verified in another process: digest, words, and texts that are generated from
them, whose every citation is held against its document byte for byte. The model is the tiny one.
"""

import json
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import lance  # noqa: F401  imported once, opened only in children

from cog.corpus.documents import digest_records
from cog.decoding.generator import CopyGenerator
from cog.decoding.request import Request
from cog.index.building.builder import build_index
from cog.index.read.reader import PhraseIndex, open_index
from cog.index.read.verify import verify_index
from cog.index.versions.activation import get_kept, rollback_corpus, switch_corpus
from cog.index.versions.folders import iter_kept
from cog.model.load import load_index_model, load_model
from cog.params import load_params
from cog.paths import ProjectPaths
from cog.progress import SilentProgress
from cog.records import CORPUS as COPIED
from cog.records import Decoding, Document
from cog.registry import load_active
from tests.index.hash_model import write_corpus
from tests.killing import run_child, watch_files
from tests.tiny_project import TINY_CORPUS

CORPUS = "village"
DECODING = Decoding("nucleus", 0.95, 0, 12, 16, 4.0)
PREFIXES = ("The old mill", "On market days the council")


class Driver:
    """One project that is built, killed and checked again and again.

    :param project: The project, with a model folder and a card.
    :param seed: Seed of the moments.
    """

    def __init__(self, project: ProjectPaths, seed: int) -> None:
        self.project = project
        self.random = random.Random(seed)
        folder = project.root / "models" / "tiny"
        self.model = load_index_model(folder)
        self.writer = load_model(folder)
        lines = TINY_CORPUS.read_text(encoding="utf-8").splitlines()
        self.sentences = [each for line in lines for each in json.loads(line)["text"].split(". ")]
        self.counts: Counter[str] = Counter()
        self.durations: list[float] = []

    def build(self, kill_at: int = 0, note: Path | None = None) -> None:
        """Build in this process.

        :param kill_at: The touch of a file at which it is killed; 0: it is not.
        :param note: Where the number of touches goes.
        """
        touches = watch_files(str(self.project.root), kill_at)
        build_index(
            self.project.corpus(CORPUS),
            model_fingerprint=self.model.fingerprint,
            load_model=lambda: self.model,
            params=load_params(self.project.params).index,
            progress=SilentProgress(),
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
        """Open, verify and write from what is in place and what is active, or raise.

        :param digests: Versions to verify; None is the one in place.
        :param note: Where the number of citations goes.
        """
        num_citations = 0
        for digest in digests:
            with open_index(
                self.project.corpus(CORPUS),
                model_fingerprint=self.model.fingerprint,
                digests={CORPUS: digest},
            ) as index:
                verify_index(index, progress=SilentProgress())
                ordinals = range(index.num_documents)
                documents = index.get_documents(ordinals)
                found = digest_records(documents[i] for i in ordinals)
                assert found == index.parts[0].manifest.documents_digest, (
                    "other documents than stated"
                )
                num_citations += self._write(
                    index, {each.document_id: each for each in documents.values()}
                )
        note.write_text(str(num_citations))

    def _write(self, index: PhraseIndex, documents: dict[str, Document]) -> int:
        requests = [Request(prefix, DECODING) for prefix in PREFIXES]
        num_citations = 0
        for text in CopyGenerator(self.writer, index).generate(requests):
            assert text.index == index.digest
            assert text.text == "".join(each.text for each in text.segments)
            for segment in text.segments:
                if segment.origin == COPIED:
                    source = documents[str(segment.document_id)].text
                    copied = source[segment.char_start : segment.char_end].encode("utf-8")
                    assert copied == segment.text.encode("utf-8"), segment
                    num_citations += 1
        return num_citations

    def write_documents(self, number: int) -> None:
        """Give the corpus other documents: a few of them change from build to build.

        :param number: Which.
        """
        documents = [self._make_document(i) for i in range(number % 3, 10 + number % 5)]
        write_corpus(self.project.corpus(CORPUS), documents)

    def _make_document(self, number: int) -> Document:
        text = ". ".join(random.Random(number).sample(self.sentences, 2))
        return Document(f"document-{number}", f"Títle {number}", text, "", "CC0-1.0", "a.txt:1")

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
            digests: set[str | None] = {None, active.index}
            if number % 10 == 0:
                digests |= {kept.digest for _, kept in iter_kept(self.project.corpus(CORPUS))}
            assert run_child(lambda wanted=digests: self.check(wanted, note)) == 0, (
                f"after step {number} an index is lost or damaged"
            )
            self.counts["verified"] += len(digests)
            self.counts["citations"] += int(note.read_text())
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
