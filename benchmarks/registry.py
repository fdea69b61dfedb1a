"""The light commands: seconds of whole processes, their start and imports included.

``python -m benchmarks.registry [--cards 1000] [--repeats 7] [--corpora wiki-mini,eu-law-mini]``.
The project is made in a temporary folder. ``seconds`` is what a clock on the wall says,
``cpu_seconds`` what the process itself took; on a machine that does nothing else they are equal.
``empty`` is ``cog --version`` in the same project: what starting the interpreter and the command
line takes. ``switch`` goes from one built corpus of this project to the other and back, which
``make demo`` builds; without them it is null.
"""

import argparse
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT, report
from cog.paths import ProjectPaths

CODE = "import sys; sys.argv[1:] = {words!r}; from cog.cli.main import main; main()"
PARTS = ("wiki-mini", "wiki-lead", "law-mt", "eu-law-mini", "en-wiki-1pct", "en-wiki")


def make_cards(paths: ProjectPaths, num_cards: int) -> None:
    """Fill a project with cards: copies of this project's own under other ids.

    :param paths: The project.
    :param num_cards: How many.
    """
    paths.cards.mkdir(parents=True)
    paths.params.write_bytes((ROOT / paths.params.name).read_bytes())
    texts = [(name, ProjectPaths(ROOT).card(name).read_text(encoding="utf-8")) for name in PARTS]
    for number in range(num_cards):
        name, text = texts[number % len(texts)]
        corpus_id = f"corpus-{number}"
        own = text.replace(f"id: {name}\n", f"id: {corpus_id}\n", 1)
        paths.card(corpus_id).write_text(own, encoding="utf-8")


def time_process(words: Sequence[str]) -> tuple[float, float]:
    """Run ``cog`` in a process of its own.

    :param words: Its arguments.
    :returns: Seconds on the wall, and of the processor.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    command = [sys.executable, "-c", CODE.format(words=list(words))]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(words: Sequence[str], repeats: int) -> dict[str, float]:
    """Run ``cog`` several times.

    :param words: Its arguments.
    :param repeats: How often; once more before, so that files are in memory.
    :returns: Least and median seconds.
    """
    time_process(words)
    return summarise([time_process(words) for _ in range(repeats)])


def summarise(times: Sequence[tuple[float, float]]) -> dict[str, float]:
    """Of several runs of a process.

    :param times: Seconds on the wall, and of the processor, of each.
    :returns: Least and median seconds.
    """
    walls, processors = zip(*times, strict=True)
    return {
        "seconds_median": statistics.median(walls),
        "seconds_least": min(walls),
        "cpu_seconds_median": statistics.median(processors),
    }


def measure_switch(
    paths: ProjectPaths, corpora: Sequence[str], repeats: int
) -> dict[str, float] | None:
    """Switch between built corpora of this project, in another that has copies of them.

    :param paths: The other project, which has no cards of these names yet.
    :param corpora: Ids of the corpora.
    :param repeats: How often each.
    :returns: Least and median seconds of a switch; None if a corpus is not built.
    """
    own = ProjectPaths(ROOT)
    if not all(own.corpus(corpus_id).manifest.is_file() for corpus_id in corpora):
        return None
    (paths.root / own.models.name).symlink_to(own.models)
    for corpus_id in corpora:
        paths.card(corpus_id).write_bytes(own.card(corpus_id).read_bytes())
        shutil.copytree(own.corpus(corpus_id).root, paths.corpus(corpus_id).root)
    words = [["--project", str(paths.root), "switch", "--corpus", name] for name in corpora]
    for each in words:
        time_process(each)
    return summarise([time_process(each) for _ in range(repeats) for each in words])


def main() -> None:
    """Measure and print one JSON line; exit 1 if a list or a switch takes a second or more."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cards", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--corpora", default="wiki-mini,eu-law-mini")
    options = parser.parse_args()
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        paths = ProjectPaths(Path(folder))
        make_cards(paths, options.cards)
        project = ["--project", folder]
        figures["help"] = measure([*project, "--help"], options.repeats)
        figures["empty"] = measure([*project, "--version"], options.repeats)
        figures["list"] = measure([*project, "corpus", "list"], options.repeats)
        figures["list_json"] = measure([*project, "corpus", "list", "--json"], options.repeats)
    with tempfile.TemporaryDirectory() as folder:
        paths = ProjectPaths(Path(folder))
        make_cards(paths, 0)
        corpora = options.corpora.split(",")
        figures["switch"] = measure_switch(paths, corpora, options.repeats)
    report({"benchmark": "registry", "cards": options.cards, **figures})
    limited = [figures[name] for name in ("list", "list_json", "switch") if figures[name]]
    slowest = max(each["seconds_least"] for each in limited)
    raise SystemExit(0 if slowest < 1 else 1)


if __name__ == "__main__":
    main()
