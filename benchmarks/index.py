"""Building an index against the bare encoders on the same batches, and gathering candidates.

In a project with a prepared corpus: ``python -m benchmarks.index [--corpus wiki-mini]``. The index
is built again in a temporary folder; the project's own is left alone.
"""

import argparse
import multiprocessing
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.common import ROOT, peak_bytes, report, say
from cog.index.building.builder import build_index
from cog.index.read.reader import open_index
from cog.model.load import IndexModel, load_index_model
from cog.model.protocols import TextNetwork
from cog.params import load_params
from cog.paths import CorpusPaths, find_project
from cog.progress import show_progress

NUM_GATHERS = 9


class Stopwatch:
    """Adds up the seconds that wrapped calls take."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Time every call of a function.

        :param function: The function.
        :returns: The same, timed.
        """

        def timed(*values: object, **named: object) -> object:
            began = time.perf_counter()
            try:
                return function(*values, **named)
            finally:
                if torch.cuda.is_available():
                    torch.cuda.synchronize()
                self.seconds += time.perf_counter() - began

        return timed


class Timed:
    """A network whose passes are timed.

    :param network: The network.
    :param watch: The stopwatch.
    """

    def __init__(self, network: TextNetwork, watch: Stopwatch) -> None:
        self.dim = network.dim
        self.device = network.device
        self.max_positions = network.max_positions
        self._run = watch.wrap(network)

    def __call__(self, *batch: object) -> object:
        """Read texts."""
        return self._run(*batch)


def time_encoders(model: IndexModel) -> dict[str, Stopwatch]:
    """Put a stopwatch on the two transformers themselves.

    What is timed is their forward passes alone: no tokenising, no heads, no copying.

    :param model: The model; its transformers are wrapped in place.
    :returns: Stopwatches by role.
    """
    watches = {"phrase_encoder": Stopwatch(), "retriever": Stopwatch()}
    for role, owner in (("phrase_encoder", model.phrase_encoder), ("retriever", model.retriever)):
        owner.network = Timed(owner.network, watches[role])
    return watches


def build(
    source: str,
    target: str,
    vector_dtype: str,
    device: str,
    results: "multiprocessing.Queue[Any]",
) -> None:
    """Build an index in a process of its own, so that its peak memory is its own.

    :param source: The project's corpus folder.
    :param target: A temporary corpus folder.
    :param vector_dtype: ``int8`` or ``float16``.
    :param device: ``cpu`` or ``cuda``.
    :param results: Where the figures go.
    """
    paths = find_project(ROOT)
    params = load_params(paths.params)
    corpus_paths = CorpusPaths(Path(target))
    corpus_paths.root.mkdir(parents=True)
    for name in (corpus_paths.documents.name, corpus_paths.prompts.name):
        shutil.copy(Path(source) / name, corpus_paths.root / name)
    model = load_index_model(paths.model(params.model), device=device)
    watches = time_encoders(model)
    loaded = peak_bytes()
    began = time.perf_counter()
    with show_progress("index", total=None, unit="words") as progress:
        built = build_index(
            corpus_paths,
            model_fingerprint=model.fingerprint,
            load_model=lambda: model,
            params=replace(params.index, vector_dtype=vector_dtype),
            progress=progress,
        )
    seconds = time.perf_counter() - began
    results.put(
        {
            "manifest": asdict(built.manifest),
            "seconds": seconds,
            "encoders": {role: watch.seconds for role, watch in watches.items()},
            "bytes": {"loaded": loaded, "peak": peak_bytes()},
        }
    )


def time_gathers(corpus_paths: CorpusPaths, *, num_chunks: int) -> dict[str, float]:
    """Gather random chunks, first with nothing of the index in memory, then again and again.

    :param corpus_paths: The built corpus.
    :param num_chunks: Number of chunks of a gather, or all if there are fewer.
    :returns: Seconds cold and warm, and the number of words.
    """
    for path in corpus_paths.index.rglob("*"):
        if path.is_file() and hasattr(os, "posix_fadvise"):
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    random = np.random.default_rng(0)
    with open_index(corpus_paths) as index:
        seconds = []
        for _ in range(NUM_GATHERS):
            size = min(num_chunks, index.num_chunks)
            ids = random.choice(index.num_chunks, size=size, replace=False)
            began = time.perf_counter()
            gathered = index.gather_chunks(ids)
            seconds.append(time.perf_counter() - began)
    return {
        "cold_seconds": seconds[0],
        "warm_seconds": statistics.median(seconds[1:]),
        "num_chunks": size,
        "num_words": len(gathered.word_flags),
    }


def main() -> None:
    """Build, gather, and print the ratios (ours over the bare encoders; larger is better)."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", default="wiki-mini")
    parser.add_argument("--chunks", type=int, default=1024)
    parser.add_argument("--vector-dtype", default="int8", choices=["int8", "float16"])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    options = parser.parse_args()

    source = find_project(ROOT).corpus(options.corpus)
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / options.corpus
        context = multiprocessing.get_context("spawn")
        results: multiprocessing.Queue[Any] = context.Queue()
        arguments = (str(source.root), str(target), options.vector_dtype, options.device, results)
        process = context.Process(target=build, args=arguments)
        process.start()
        built = results.get()
        process.join()
        say("gathering")
        gathers = time_gathers(CorpusPaths(target), num_chunks=options.chunks)
    manifest, encoders = built["manifest"], built["encoders"]
    words = manifest["num_words"]
    both = sum(encoders.values())
    report(
        {
            "benchmark": "index",
            "device": options.device,
            "ratio_both_encoders": both / built["seconds"],
            "ratio_phrase_encoder": encoders["phrase_encoder"] / built["seconds"],
            "words_per_second": words / built["seconds"],
            "bare_words_per_second": {
                "phrase_encoder": words / encoders["phrase_encoder"],
                "both_encoders": words / both,
            },
            "bytes_per_word": manifest["sizes"]["total"] / words,
            "vector_bytes_per_word": manifest["vectors"]["bytes_per_word"],
            "gather": gathers,
            "bytes": built["bytes"],
            "seconds": manifest["seconds"],
            "num_words": words,
            "num_chunks": manifest["num_chunks"],
            "corpus": options.corpus,
        }
    )


if __name__ == "__main__":
    main()
