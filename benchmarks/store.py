"""What a prompt asks an object store for: requests and bytes, of a server that speaks S3.

In a project with a built corpus: ``python -m benchmarks.store [--corpus wiki-mini]``. The index is
pushed to a server on this machine, opened there, and for the vector of each of some chunks the
nearest are searched and gathered, and a few of their documents read. Seconds mean nothing here: the
server reads a whole object for each part of it.
"""

import argparse
import os
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import ROOT, report
from cog.index.read.part import IndexPart
from cog.index.read.reader import PhraseIndex, open_index
from cog.index.versions.remote import push_index
from cog.paths import CorpusPaths, find_project
from cog.progress import SilentProgress
from tests.index.versions.s3_server import S3Server, serve_s3

NUM_CITED = 8  # documents that a text cites


class Counter:
    """Counts what an open index asks for.

    :param server: The server.
    :param part: The index.
    """

    def __init__(self, server: S3Server, part: IndexPart) -> None:
        self._server = server
        self._part = part

    def count(self, work: Callable[[], Any]) -> tuple[Any, dict[str, int]]:
        """Do something.

        :param work: What to do.
        :returns: What that gives, and the requests and bytes that it took.
        """
        tables = self._part._tables.values()
        for table in tables:
            table.io_stats_incremental()
        self._server.requests.take()
        result = work()
        num_bytes = sum(table.io_stats_incremental().read_bytes for table in tables)
        return result, {"requests": len(self._server.requests.take()), "bytes": num_bytes}


def count_prompt(
    index: PhraseIndex, counter: Counter, vector: np.ndarray, *, top_k: int
) -> dict[str, dict[str, int]]:
    """What a prompt asks for, by step.

    :param index: The open index.
    :param counter: What counts.
    :param vector: The prompt's vector. *Shape:* ``(1, dim)``
    :param top_k: Number of chunks that are gathered.
    :returns: Requests and bytes.
    """
    found, search = counter.count(lambda: index.search_chunks(vector, top_k=top_k))
    chunk_ids = np.sort(found.rows[0])
    gathered, gather = counter.count(lambda: index.gather_chunks(chunk_ids))
    ordinals = gathered.document_ordinals[:NUM_CITED].tolist()
    _, documents = counter.count(lambda: index.get_documents(ordinals))
    runs = 1 + int((np.diff(chunk_ids) > 1).sum())
    return {
        "search": search,
        "gather": gather,
        "documents": documents,
        "runs of chunks": {"requests": runs, "bytes": 0},
    }


def main() -> None:
    """Push, open, ask, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", default="wiki-mini")
    parser.add_argument("--root", type=Path, default=ROOT, help="the project")
    parser.add_argument("--chunks", type=int, default=64)
    parser.add_argument("--prompts", type=int, default=8)
    options = parser.parse_args()

    paths = find_project(options.root)
    with tempfile.TemporaryDirectory() as folder, serve_s3() as server:
        # more at once, and the server misses its time
        os.environ |= server.set_access("benchmark") | {
            "COG_CACHE": folder,
            "LANCE_IO_THREADS": "4",
        }
        pushed = push_index(paths, options.corpus, progress=SilentProgress())
        there = CorpusPaths(Path(folder) / options.corpus)
        there.root.mkdir()
        there.manifest.write_bytes(paths.corpus(options.corpus).manifest.read_bytes())
        server.requests.take()
        with open_index(there) as index:
            opened = len(server.requests.take())
            (part,) = index.parts
            vectors = next(part.iter_vectors())
            chosen = np.random.default_rng(0).choice(len(vectors), options.prompts, replace=False)
            counter = Counter(server, part)
            prompts = [
                count_prompt(index, counter, vectors[i : i + 1], top_k=options.chunks)
                for i in chosen.tolist()
            ]
    report(
        {
            "benchmark": "store",
            "num_chunks": pushed.num_chunks,
            "search": pushed.search.kind,
            "opening": {"requests": opened},
            "first prompt": prompts[0],
            "prompt": {
                step: {
                    name: statistics.median(prompt[step][name] for prompt in prompts[1:])
                    for name in prompts[0][step]
                }
                for step in prompts[0]
            },
        }
    )


if __name__ == "__main__":
    main()
