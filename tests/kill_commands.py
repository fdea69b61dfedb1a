"""Kills commands at touches of files and at random moments, and runs them again.

``python -m tests.kill_commands FOLDER NAMES NUMBER SEED``: ``FOLDER/built`` is a built project.
What is there after a killed command was run again must be what is there after one that nobody
disturbed: the same files, and in them whatever two undisturbed runs agree on, such as digests.
"""

import json
import os
import random
import re
import shutil
import sqlite3
import sys
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import cog.baselines.datastore
import cog.evaluation.runner
import cog.evaluation.tracking
import cog.index.project
import cog.training.job  # noqa: F401  imported once, used in children only
from tests.fuzz.running import run_cog
from tests.killing import run_child, watch_files

RANDOM = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{12,}|[01]{24,}[0-9a-f]*|\d{10,}")
# times, and passes of the model: they hang on which texts share them
TIMES = re.compile(r'\d{4}-\d\d-\d\dT[\d:.]+|"seconds": (\{[^}]*\}|[\d.e-]+)|"num_passes": \d+')
HISTORY = "registry/history.jsonl"
PIECES = re.compile(r"[\n,]")
Facts = dict[tuple[str, int], str]


@dataclass(frozen=True, slots=True)
class Case:
    """A command that is killed.

    :param command: The command.
    :param before: Commands before it; ``+LINE`` adds a line to the source of the corpus.
    :param intact: What ends well after a kill, too; empty for nothing.
    :param told: Files whose content must be the same, at least in part.
    :param is_repeatable: Whether the command may be called once more when all is done.
    """

    command: str
    before: tuple[str, ...] = ()
    intact: str = ""
    told: tuple[str, ...] = ()
    is_repeatable: bool = True


NEW = '+{"id": "new", "title": "New", "text": "A new house stands beside the mill of the village."}'
SWITCHED = ("switch village", NEW, "corpus fetch village")
TRACKED = "evaluate --corpus village --metric repetition --allow-few-texts --device cpu"
CASES = {
    "fetch": Case(
        "corpus fetch village",
        (NEW,),
        intact="corpus show village",
        told=("corpora/village/raw/SOURCE.json", "corpora/village/raw/village.jsonl"),
    ),
    "prepare": Case(
        "corpus prepare village",
        SWITCHED,
        intact="corpus stats village",
        told=("corpora/village/documents.parquet", "corpora/village/prompts.parquet"),
    ),
    "index": Case(
        "index build village",
        (*SWITCHED, "corpus prepare village"),
        intact="status",
        told=("corpora/village/manifest.json",),
    ),
    "switch": Case(
        "switch village",
        (*SWITCHED, "corpus prepare village", "index build village"),
        intact="status",
        told=("registry/active.yaml", HISTORY),
    ),
    "rollback": Case(
        "rollback",
        (*SWITCHED, "corpus prepare village", "index build village", "switch village"),
        intact="status",
        told=("registry/active.yaml",),
        is_repeatable=False,
    ),
    "add": Case(
        "corpus add meadow {root}/texts/village.jsonl",
        intact="corpus list",
        told=("registry/cards/meadow.yaml", "registry/pipeline.yaml"),
        is_repeatable=False,
    ),
    "remove": Case(
        "corpus remove village",
        ("corpus remove hamlet",),
        intact="corpus list",
        told=("registry/pipeline.yaml",),
        is_repeatable=False,
    ),
    "datastore": Case(
        "paper datastore build village --device cpu",
        ("paper datastore build village --device cpu", *SWITCHED, "corpus prepare village"),
        told=("corpora/village/datastore/manifest.json",),
    ),
    "retro": Case(
        "paper retro train --corpus village --stage",
        (TRACKED,),
        told=("corpora/village/retro/config.json",),
    ),
    "train": Case(
        "train --corpus village --max-steps 6 --workers 0 --resume --out {root}/models/new",
        (TRACKED,),
        told=("models/new/config.yaml", "mlflow.db"),
    ),
    "segment": Case("paper segment --corpus village", told=("corpora/village/segments.json",)),
    "generate": Case(
        "generate --corpus village --stage", told=("corpora/village/generations.jsonl",)
    ),
    "evaluate": Case(
        "evaluate --corpus village --allow-few-texts --seeds 0,1 --device cpu",
        (TRACKED,),
        told=("mlflow.db",),
    ),
    "study": Case(
        "paper study blind export --systems village village:transformer --prompts 2",
        (TRACKED, f"{TRACKED} --system transformer"),
        is_repeatable=False,
    ),
}


@dataclass
class Killer:
    """A project in which one command is killed again and again.

    :param folder: Holds the project; what it begins with is kept beside it.
    :param case: The command.
    """

    folder: Path
    case: Case
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def root(self) -> Path:
        """The project."""
        return self.folder / "project"

    def run(self, num_kills: int, seed: int) -> dict[str, int]:
        """Kill as often as asked: most at touches from the first to the last, some at random."""
        for step in self.case.before:
            self._prepare(step)
        shutil.copytree(self.root, self.folder / "before", symlinks=True)
        names, first = self._finish()
        self._restore()
        began = time.monotonic()
        num_touches = int(self._call(self.case.command))
        duration = time.monotonic() - began
        other_names, second = self.describe()
        assert names == other_names, (names - other_names, other_names - names)
        agreed = dict(first.items() & second.items())
        told = {name for name, _ in agreed}
        assert told >= set(self.case.told), set(self.case.told) - told
        draw = random.Random(seed)
        num_random = num_kills // 4
        touches = np.linspace(1, num_touches, num_kills - num_random or num_touches).astype(int)
        for touch in sorted(set(touches.tolist())):
            self._kill(names, agreed, touch=touch)
        for _ in range(num_random):
            self._kill(names, agreed, delay=draw.uniform(0, duration))
        return dict(self.counts) | {"touches": num_touches}

    def describe(self) -> tuple[Counter[str], Facts]:
        """The names of all files, and what is in them, piece by piece."""
        names: Counter[str] = Counter()
        facts: Facts = {}
        for path in sorted(self.root.rglob("*")):
            name = RANDOM.sub("#", path.relative_to(self.root).as_posix())
            if name.startswith("mlartifacts/"):  # those of runs that were killed stay
                continue
            names[name] += 1
            if path.is_dir() or ".lance" in name or name.startswith(".cog/locks"):
                continue
            describe = DESCRIBED.get(path.name)
            content = describe(path) if describe else path.read_bytes().decode("latin-1")
            content = TIMES.sub("TIME", content)
            facts |= {(name, i): piece for i, piece in enumerate(PIECES.split(content))}
        return names, facts

    def _prepare(self, step: str) -> None:
        if step.startswith("+"):
            with (self.root / "texts" / "village.jsonl").open("a", encoding="utf-8") as file:
                file.write(step[1:] + "\n")
        else:
            self._call(step)

    def _restore(self) -> None:
        shutil.rmtree(self.root)
        shutil.copytree(self.folder / "before", self.root, symlinks=True)

    def _finish(self) -> tuple[Counter[str], Facts]:
        self._call(self.case.command)
        return self.describe()

    def _call(self, command: str, *, kill_at: int = 0, delay: float | None = None) -> str:
        # what it says goes to a file beside the project; the number of touches comes out
        note = self.folder / "note"

        def work() -> None:
            touches = watch_files(str(self.root), kill_at)
            error = run_cog(self.root, command.format(root=self.root).split()).error
            note.write_text(error or str(len(touches)))
            assert not error

        note.write_text("")
        status = run_child(work) if delay is None else run_child(work, delay=delay)
        is_killed = bool(kill_at) or delay is not None
        assert status == 0 or (is_killed and status == -9), (command, status, note.read_text())
        self.counts["killed"] += status != 0
        return note.read_text()

    def _is_done(self, agreed: Facts) -> bool:
        # a line of the history comes last, and `cog history` tells that it is missing
        _, facts = self.describe()
        return all(facts.get(key) == fact for key, fact in agreed.items() if key[0] != HISTORY)

    def _kill(
        self,
        names: Counter[str],
        agreed: Facts,
        *,
        touch: int = 0,
        delay: float | None = None,
    ) -> None:
        self._restore()
        self._call(self.case.command, kill_at=touch, delay=delay)
        where = f"killed at touch {touch}" if touch else f"killed after {delay} s"
        try:
            if self.case.intact:
                self._call(self.case.intact)
            if self.case.is_repeatable or not self._is_done(agreed):
                self._call(self.case.command)
                found, facts = self.describe()
                assert found == names, (found - names, names - found)
                assert agreed.items() <= facts.items(), sorted(agreed.items() - facts.items())[:3]
        except AssertionError as error:
            raise AssertionError(self.case.command, where, *error.args) from None


def describe_runs(database: Path) -> str:
    """How many runs of MLflow seem to go on; a run that ended and was killed then is run again."""
    with closing(sqlite3.connect(database)) as connection:
        (count,) = connection.execute("SELECT count(*) FROM runs WHERE status = 'RUNNING'")
        return str(count)


def describe_manifest(path: Path) -> str:
    """What is counted in an index, and its digest; sizes of Lance's files differ by a few bytes."""
    content = json.loads(path.read_text(encoding="utf-8"))
    return json.dumps([content["digest"], content.get("documents"), content.get("num_words")])


DESCRIBED = {"mlflow.db": describe_runs, "manifest.json": describe_manifest}


def main() -> None:
    """Run some cases, each in a copy of the project, and print their counts as JSON."""
    folder, names, num_kills, seed = sys.argv[1:]
    os.environ["COG_CACHE"] = str(Path(folder) / "cache")
    counts = {}
    for name in names.split(","):
        shutil.copytree(Path(folder) / "built", Path(folder) / name / "project")
        counts[name] = Killer(Path(folder) / name, CASES[name]).run(int(num_kills), int(seed))
    sys.stdout.write(json.dumps(counts) + "\n")


if __name__ == "__main__":
    main()
