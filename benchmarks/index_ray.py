"""Two local Ray workers against a build with two threads, on the same documents, in one run.

In a project with a prepared corpus: ``python -m benchmarks.index_ray [--corpus wiki-mini]``. Both
build several times, in turn, each in a process of its own, in a temporary folder. Words a second
are those after the first tenth, so that neither loading the model nor starting workers counts;
``ratio_whole`` counts both.
"""

import argparse
import multiprocessing
import os
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT, report, say
from cog.corpus.documents import DOCUMENT_SCHEMA, PROMPT_SCHEMA, DocumentStore, RecordWriter
from cog.index.building.builder import build_index
from cog.index.building.encoding import OpenPool, open_local_pool
from cog.index.building.ray_pool import WorkerModel, open_ray_pool
from cog.model.load import load_index_model
from cog.params import load_params
from cog.paths import CorpusPaths, find_project
from cog.progress import SilentProgress

ENGINES = ("local", "ray")
COMMIT_CHUNKS = 256  # so that a short corpus has windows enough
SKIPPED_SHARE = 0.1  # of the words, before the clock begins


class Clock(SilentProgress):
    """Notes when how many words were done."""

    def __init__(self) -> None:
        self.times: list[tuple[float, int]] = []

    def advance(self, amount: int) -> None:
        """Note an amount.

        :param amount: Of words.
        """
        done = self.times[-1][1] if self.times else 0
        self.times.append((time.perf_counter(), done + amount))

    def get_rate(self) -> float:
        """Words a second after the first share.

        :returns: The rate.
        """
        total = self.times[-1][1]
        began, before = next(each for each in self.times if each[1] >= SKIPPED_SHARE * total)
        return (total - before) / (self.times[-1][0] - began)


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
    wanted = WorkerModel(
        folder, model.fingerprint, model.numerics, "cpu", params.index.vector_dtype, None
    )
    open_pool: OpenPool = open_local_pool
    if engine == "ray":
        open_pool = lambda *_: open_ray_pool(wanted, address=address, progress=clock)  # noqa: E731
    corpus_paths = CorpusPaths(Path(root))
    began = time.perf_counter()
    manifest = build_index(
        corpus_paths,
        locks=corpus_paths.root / "locks",
        model_fingerprint=model.fingerprint,
        load_model=lambda: model,
        params=replace(params.index, commit_chunks=COMMIT_CHUNKS),
        get_kept=lambda: None,
        progress=clock,
        force=True,
        open_pool=open_pool,
    ).manifest
    results.put(
        {
            "digest": manifest.digest,
            "num_words": clock.times[-1][1],
            "words_per_second": clock.get_rate(),
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
    local, ray = (
        statistics.median(each["words_per_second"] for each in found[engine]) for engine in ENGINES
    )
    whole = [min(each["seconds"] for each in found[engine]) for engine in ENGINES]
    report(
        {
            "benchmark": "index_ray",
            "ratio": ray / local,
            "ratio_whole": whole[0] / whole[1],
            "is_equal": len({each["digest"] for engine in ENGINES for each in found[engine]}) == 1,
            "words_per_second": {"local": local, "ray": ray},
            "rounds": found,
            "corpus": options.corpus,
        }
    )


if __name__ == "__main__":
    main()
