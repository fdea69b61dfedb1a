"""Two local Ray workers against a build with two threads, on the same documents, in one run.

In a project with a prepared corpus: ``python -m benchmarks.index_ray [--corpus wiki-mini]``. Both
build several times, in turn, each in a process of its own, in a temporary folder. The clock begins
when all workers have loaded the model and ends with the last row; ``ratio_whole`` counts all.
``ratio_processor`` compares words a second of processor time, of all processes: on a machine that
does other things, who has more processes is given more of it.
"""

import argparse
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT, report, say
from cog.corpus.documents import DOCUMENT_SCHEMA, PROMPT_SCHEMA, DocumentStore, RecordWriter
from cog.index.building.builder import build_index
from cog.index.building.encoding import Encoders, Pool, open_local_pool
from cog.index.building.ray_pool import WorkerModel, open_ray_pool
from cog.model.load import IndexModel, load_index_model
from cog.params import load_params
from cog.paths import CorpusPaths, find_project
from cog.progress import SILENT

ENGINES = ("local", "ray")
COMMIT_CHUNKS = 128  # so that a short corpus has windows enough
NUM_FIRST = 8  # tasks before the clock begins


class Clock:
    """Words a second while a pool encodes; its workers have loaded the model before."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.processor_seconds = 0.0

    @contextmanager
    def open_pool(self, model: IndexModel, encoders: Encoders, opened: Any) -> Iterator[Pool]:  # noqa: ANN401
        """Open a pool, let every worker do something, and take the time that it is used.

        :param model: The model.
        :param encoders: Its encoders.
        :param opened: Opens the pool.
        :yields: The pool.
        """
        with opened(model, encoders) as pool:
            for each in [pool.submit(Encoders.measure_batch_change) for _ in range(NUM_FIRST)]:
                each.result()
            began, spent = time.perf_counter(), get_processor_seconds()
            yield pool
            self.seconds = time.perf_counter() - began
            self.processor_seconds = get_processor_seconds() - spent


def get_processor_seconds() -> float:
    """Processor time of this process and of all below it that live.

    :returns: Seconds.
    """
    parents, ticks = {}, {}
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended meanwhile
            fields = (path / "stat").read_text().rpartition(")")[2].split()
            pid = int(path.name)
            parents[pid], ticks[pid] = int(fields[1]), int(fields[11]) + int(fields[12])

    def is_below(pid: int) -> bool:
        while pid in parents and pid != os.getpid():
            pid = parents[pid]
        return pid == os.getpid()

    return sum(ticks[pid] for pid in ticks if is_below(pid)) / os.sysconf("SC_CLK_TCK")


def write_beginning(source: CorpusPaths, target: CorpusPaths, *, num_words: int) -> None:
    """Write the first documents of a corpus as a corpus.

    :param source: The corpus.
    :param target: Where they go.
    :param num_words: How many words, at least.
    """
    target.root.mkdir(parents=True)
    documents = DocumentStore(source.documents)
    done = 0
    with RecordWriter(target.documents, DOCUMENT_SCHEMA) as writer:
        for document in documents.iter_documents():
            writer.write(document)
            done += len(document.text.split())
            if done >= num_words:
                break
        found = replace(
            documents.load_report(),
            corpus=target.root.name,
            num_read=writer.num_records,
            num_documents=writer.num_records,
            num_words=done,
            digest=writer.digest(),
            skipped={},
        )
        writer.finish(found)
    with RecordWriter(target.prompts, PROMPT_SCHEMA) as writer:
        writer.finish(found)


def build(root: str, engine: str, address: str, results: "multiprocessing.Queue[Any]") -> None:
    """Build an index in a process of its own.

    :param root: The corpus folder.
    :param engine: ``local`` or ``ray``.
    :param address: Of a cluster; empty for one of this machine alone.
    :param results: Where the figures go.
    """
    # else workers give way to all others, and threads do not
    os.environ.update({"RAY_worker_niceness": "0"})
    paths = find_project(ROOT)
    params = load_params(paths.params)
    folder = paths.model(params.model)
    model = load_index_model(folder)
    clock = Clock()
    num_words = DocumentStore(CorpusPaths(Path(root)).documents).load_report().num_words
    wanted = WorkerModel(
        folder, model.fingerprint, model.numerics, "cpu", params.index.vector_dtype, None
    )
    opened: Any = open_local_pool
    if engine == "ray":
        opened = lambda *_: open_ray_pool(wanted, address=address, progress=SILENT)  # noqa: E731
    corpus_paths = CorpusPaths(Path(root))
    began = time.perf_counter()
    manifest = build_index(
        corpus_paths,
        model_fingerprint=model.fingerprint,
        load_model=lambda: model,
        params=replace(params.index, commit_chunks=COMMIT_CHUNKS),
        get_kept=lambda: None,
        progress=SILENT,
        force=True,
        open_pool=partial(clock.open_pool, opened=opened),
    ).manifest
    results.put(
        {
            "digest": manifest.digest,
            "words_per_second": num_words / clock.seconds,
            "words_per_processor_second": num_words / clock.processor_seconds,
            "seconds": time.perf_counter() - began,
        }
    )


def main() -> None:
    """Build in turn, and print the ratios (Ray over local; larger is better)."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", default="wiki-mini")
    parser.add_argument("--words", type=int, default=60_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--address", default="")
    options = parser.parse_args()

    source = find_project(ROOT).corpus(options.corpus)
    found: dict[str, list[dict[str, Any]]] = {engine: [] for engine in ENGINES}
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        target = CorpusPaths(Path(folder) / options.corpus)
        write_beginning(source, target, num_words=options.words)
        for number in range(options.rounds):
            for engine in ENGINES if number % 2 == 0 else reversed(ENGINES):
                results: multiprocessing.Queue[Any] = context.Queue()
                arguments = (str(target.root), engine, options.address, results)
                process = context.Process(target=build, args=arguments)
                process.start()
                found[engine].append(results.get())
                process.join()
                say(f"{engine}: {found[engine][-1]}")
    rates = {
        name: [statistics.median(each[name] for each in found[engine]) for engine in ENGINES]
        for name in ("words_per_second", "words_per_processor_second")
    }
    whole = [min(each["seconds"] for each in found[engine]) for engine in ENGINES]
    report(
        {
            "benchmark": "index_ray",
            "ratio": rates["words_per_second"][1] / rates["words_per_second"][0],
            "ratio_processor": rates["words_per_processor_second"][1]
            / rates["words_per_processor_second"][0],
            "ratio_whole": whole[0] / whole[1],
            "is_equal": len({each["digest"] for engine in ENGINES for each in found[engine]}) == 1,
            "rounds": found,
            "corpus": options.corpus,
        }
    )


if __name__ == "__main__":
    main()
