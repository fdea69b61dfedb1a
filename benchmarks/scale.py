"""Opening and searching an index of millions of chunks on disk.

``python -m benchmarks.scale --folder DIR [--chunks 10000 5000000]``. Indexes are made of nothing
(:mod:`benchmarks.synthetic`) in a folder below DIR, which is removed at the end.
"""

import argparse
import multiprocessing
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import report, say
from benchmarks.synthetic import LICENCES, NUM_WORDS, PEAK_BYTES, ChunkRetriever, make_index
from cog.index.read.reader import PhraseIndex, open_index
from cog.params import IndexParams
from cog.paths import CorpusPaths

TOP_K = 64
RECALL_AT = 32  # of the 40 chunks of a group; of millions of others some are as near by chance
REPEATS = 20


def read_resident_bytes() -> int:
    """Resident memory of this process now."""
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * 4096


def measure_index(root: str, results: "multiprocessing.Queue[Any]") -> None:
    """Open an index, search and gather, in a process of its own.

    :param root: The corpus folder.
    :param results: Where the figures go.
    """
    place = CorpusPaths(Path(root))
    import lance  # noqa: F401 - what is measured is opening, not importing

    before = read_resident_bytes()
    began = time.perf_counter()
    with open_index(place) as index:
        index.parts[0].searcher  # noqa: B018
        opened = time.perf_counter() - began
        memory = {"opened": read_resident_bytes() - before}
        figures = {"open_seconds": opened} | time_searches(index) | time_gathers(index)
        memory["used"] = read_resident_bytes() - before
    results.put(figures | {"memory_bytes": memory})


def time_searches(index: PhraseIndex) -> dict[str, float]:
    """Search for prefixes one by one, with and without a rule about licences."""
    random = np.random.default_rng(1)
    texts = [f"{i:010d}" for i in random.integers(0, index.num_chunks, 2 * REPEATS)]
    vectors = [ChunkRetriever(index.parts[0]).encode_texts([text]) for text in texts]
    first = time_each(lambda i: index.search_chunks(vectors[i], top_k=TOP_K), range(1))
    plain = time_each(lambda i: index.search_chunks(vectors[i], top_k=TOP_K), range(1, REPEATS))
    began = time.perf_counter()
    allowed = index.allow(LICENCES[:1], excluded=[7])
    made = time.perf_counter() - began
    ruled = time_each(
        lambda i: index.search_chunks(vectors[i], top_k=TOP_K, allowed=allowed),
        range(REPEATS, 2 * REPEATS),
    )
    return {
        "search_first_seconds": first[0],
        "search_seconds": statistics.median(plain),
        "rule_seconds": made,
        "search_with_rule_seconds": statistics.median(ruled),
    }


def time_gathers(index: PhraseIndex) -> dict[str, float]:
    """Gather random chunks, each set when nothing of it is in memory, and again."""
    random = np.random.default_rng(2)
    size = min(TOP_K, index.num_chunks)
    sets = [random.choice(index.num_chunks, size, replace=False) for _ in range(REPEATS)]
    cold = time_each(lambda i: index.gather_chunks(sets[i]), range(REPEATS))
    warm = time_each(lambda i: index.gather_chunks(sets[i]), range(REPEATS))
    return {
        "gather_first_seconds": cold[0],
        "gather_new_seconds": statistics.median(cold[1:]),
        "gather_warm_seconds": statistics.median(warm),
    }


def time_each(work: Callable[[int], object], numbers: range) -> list[float]:
    """Seconds of each call."""
    seconds = []
    for number in numbers:
        began = time.perf_counter()
        work(number)
        seconds.append(time.perf_counter() - began)
    return seconds


def main() -> None:
    """Make indexes, measure them, and print the figures by size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="where there is room")
    parser.add_argument("--chunks", type=int, nargs="+", default=[10_000, 5_000_000])
    parser.add_argument("--threshold", type=int, default=100_000)
    options = parser.parse_args()

    free, needed = shutil.disk_usage(options.folder).free, PEAK_BYTES * max(options.chunks)
    if needed > free:
        parser.error(f"{needed:,} bytes are needed in {options.folder}, {free:,} are free")
    params = IndexParams(ivf_threshold_rows=options.threshold, recall_at=RECALL_AT)
    context = multiprocessing.get_context("spawn")
    sizes: dict[str, Any] = {}
    for num_chunks in options.chunks:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            place = CorpusPaths(Path(folder) / "corpora" / "synthetic")
            made = make_index(place, num_chunks=num_chunks, params=params)
            results: multiprocessing.Queue[Any] = context.Queue()
            process = context.Process(target=measure_index, args=(str(place.root), results))
            process.start()
            with closing(results):
                sizes[str(num_chunks)] = made | results.get()
            process.join()
            say(str(sizes[str(num_chunks)]))
    report({"benchmark": "scale", "num_words_of_a_chunk": NUM_WORDS, "chunks": sizes})


if __name__ == "__main__":
    main()
