"""Preparing raw text of gigabytes: seconds, and the peak memory of the process that does it.

``python -m benchmarks.ingest [--bytes 2000000000] [--case text,document,…]``. The files are made in
a temporary folder, which needs about four times their size; they are gone afterwards. Indexing is
not timed here: it takes hours at this size, and holds one document at a time as well.
"""

import argparse
import json
import multiprocessing
import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT, peak_bytes, report, say
from cog.cards import parse_card
from cog.corpus.fetch import fetch_corpus
from cog.corpus.prepare import prepare_corpus
from cog.model.piece_counts import load_cutter
from cog.params import FetchParams, PrepareParams
from cog.paths import CorpusPaths
from cog.progress import SilentProgress

GIGABYTE = 1 << 30
ROOM = 4  # times the size: the file, its copy in raw/, documents, and what is written beside them
WRITE_BYTES = 1 << 20

# case -> kind of file, how documents are told, deduplicate
CASES = {
    "text": ("text", "blank-line", "exact"),
    "document": ("text", "file", "exact"),
    "line": ("text", "file", "exact"),
    "short": ("text", "line", "exact"),
    "jsonl": ("jsonl", "row", "exact"),
    "near": ("text", "blank-line", "near"),
}


def iter_paragraphs(num_bytes: int) -> Iterator[str]:
    """Make text that looks like text: words of a Zipf-like vocabulary, no two paragraphs alike.

    :param num_bytes: Number of bytes, about.
    :yields: Paragraphs of about 1.2 kB.
    """
    generator = random.Random(0)
    letters = "eeeeaaaooiinnnssshhhrrrttttddlluucmwfgypbvk"
    words = ["".join(generator.choices(letters, k=1 + n % 9)) for n in range(20000)]
    weights = list(accumulate(1 / (rank + 10) for rank in range(len(words))))
    sentences = [
        " ".join(generator.choices(words, cum_weights=weights, k=18)) + "." for _ in range(50000)
    ]
    made = number = 0
    while made < num_bytes:
        number += 1
        paragraph = f"{number}. " + " ".join(generator.choices(sentences, k=12))
        made += len(paragraph) + 2
        yield paragraph


def make_file(path: Path, case: str, num_bytes: int) -> None:
    """Write the raw file of a case.

    :param path: The file.
    :param case: One of ``CASES``.
    :param num_bytes: Its size, about.
    """
    with path.open("w", encoding="utf-8", buffering=WRITE_BYTES) as file:
        for paragraph in iter_paragraphs(num_bytes):
            if case == "jsonl":
                file.write(json.dumps({"text": paragraph}) + "\n")
            elif case == "short":
                number, _, text = paragraph.partition(". ")
                file.writelines(f"{number}.{i} {each}\n" for i, each in enumerate(text.split(". ")))
            else:
                file.write(paragraph + (" " if case == "line" else "\n\n"))


def make_content(case: str, path: Path) -> dict[str, Any]:
    """Make the card of a case.

    :param case: One of ``CASES``.
    :param path: The raw file.
    :returns: The card's content.
    """
    kind, documents, deduplicate = CASES[case]
    fields: dict[str, str | None] = dict.fromkeys(("id", "title", "text", "url", "licence"))
    fields["text"] = None if kind == "text" else "text"
    return {
        "id": "large",
        "title": "Large",
        "description": "Made by the benchmark.",
        "language": "en",
        "licence": {"id": "CC0-1.0", "url": None, "attribution": None},
        "source": {"type": "files", "path": str(path), "members": None},
        "format": {
            "kind": kind,
            "encoding": "utf-8",
            "fields": fields,
            "query": None,
            "documents": documents,
            "heading": None,
            "url": None,
            "on_error": "fail",
            "local": None,
        },
        "normaliser": "plain-v1",
        "filters": {"min_words": 1, "max_words": None},
        "deduplicate": deduplicate,
        "prompts": {"held_out": 0.01, "seed": 0},
        "extends": None,
        "subset": None,
    }


def prepare(folder: str, case: str, results: "multiprocessing.Queue[Any]") -> None:
    """Fetch and prepare in a process of its own, so that its peak memory is its own.

    :param folder: Where the raw file lies and the corpus goes.
    :param case: One of ``CASES``.
    :param results: Where the figures go.
    """
    path = next(Path(folder).glob("large.*"))
    card = parse_card(make_content(case, path), "large.yaml")
    corpus_paths = CorpusPaths(Path(folder) / "corpora" / card.id)
    cutter = load_cutter(ROOT / "models" / "cog-v0")
    loaded = peak_bytes()
    began = time.perf_counter()
    fetch_corpus(
        card,
        corpus_paths=corpus_paths,
        source=path,
        params=FetchParams(retries=0, timeout_seconds=1),
        progress=SilentProgress(),
    )
    fetched = time.perf_counter()
    done = prepare_corpus(
        card,
        corpus_paths=corpus_paths,
        tokenise=cutter.splitter.token_chars,
        progress=SilentProgress(),
        params=PrepareParams(32, 128),
        count_pieces=cutter.count,
    )
    results.put(
        {
            "seconds": {"fetch": fetched - began, "prepare": time.perf_counter() - fetched},
            "bytes": {"loaded": loaded, "peak": peak_bytes(), "raw": path.stat().st_size},
            "documents_per_second": done.num_read / (time.perf_counter() - fetched),
            "num_read": done.num_read,
            "num_documents": done.num_documents,
            "skipped": {reason: count for reason, count in done.skipped.items() if count},
            "num_words": done.num_words,
            "num_prompts": done.num_prompts,
            "notes": done.notes,
        }
    )


def run_case(case: str, num_bytes: int) -> dict[str, Any]:
    """Make a file, prepare it in a child process, and clean up.

    :param case: One of ``CASES``.
    :param num_bytes: Size of the file.
    :returns: The child's figures.
    """
    with tempfile.TemporaryDirectory() as folder:
        free = shutil.disk_usage(folder).free
        say(f"{case}: {free / GIGABYTE:.1f} GiB free, {ROOM * num_bytes / GIGABYTE:.1f} needed")
        if free < ROOM * num_bytes:
            raise SystemExit(f"not enough room in {tempfile.gettempdir()}: pass --bytes, or TMPDIR")
        ending = "jsonl" if CASES[case][0] == "jsonl" else "txt"
        make_file(Path(folder) / f"large.{ending}", case, num_bytes)
        say(f"{case}: preparing")
        context = multiprocessing.get_context("spawn")
        results: multiprocessing.Queue[Any] = context.Queue()
        process = context.Process(target=prepare, args=(folder, case, results))
        process.start()
        process.join()
        if process.exitcode != 0:
            raise SystemExit(f"{case}: the process ended with {process.exitcode}")
        figures: dict[str, Any] = results.get()
        return figures


def main() -> None:
    """Prepare every case and print the figures; exit 1 if one took 1 GiB or lost any."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=int, default=2_000_000_000)
    parser.add_argument("--case", default="text,document", help=", ".join(CASES))
    options = parser.parse_args()
    cases = {case: run_case(case, options.bytes) for case in options.case.split(",")}
    peak = max(figures["bytes"]["peak"] for figures in cases.values())
    is_whole = all(
        each["num_read"] == each["num_documents"] + sum(each["skipped"].values())
        for each in cases.values()
    )
    report({"benchmark": "ingest", "peak_bytes": peak, "is_whole": is_whole, "cases": cases})
    raise SystemExit(0 if peak < GIGABYTE and is_whole else 1)


if __name__ == "__main__":
    main()
