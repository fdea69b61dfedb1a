"""Building an index after a few documents changed, against building it from nothing, in one run.

In a project with a prepared corpus: ``python -m benchmarks.incremental [--corpus wiki-mini]``.
Everything is built in a temporary folder; the project's own index is left alone. A share of the
documents is changed: a third gets another text, a third goes, and as many come new. What is timed
is all that ``cog index build`` does, loading the model included, each build in its own process.
"""

import argparse
import multiprocessing
import shutil
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT, peak_bytes, report, say
from cog.corpus.documents import DOCUMENT_SCHEMA, DocumentStore, RecordWriter
from cog.decoding.storage import make_storage_measure
from cog.index.building.builder import build_index
from cog.model.fingerprint import fingerprint_model
from cog.model.load import load_index_model
from cog.params import load_params
from cog.paths import CorpusPaths, find_project
from cog.progress import show_progress
from cog.records import Document


def change_documents(corpus: CorpusPaths, *, share: float) -> int:
    """Change a share of the documents of a corpus, evenly spread over it.

    :param corpus: The corpus; its documents are written anew.
    :param share: Share of the documents that differ afterwards.
    :returns: Number of documents changed, removed or added.
    """
    store = DocumentStore(corpus.documents)
    documents = list(store.iter_documents())
    step = max(1, round(1 / share))
    changed: list[Document] = []
    count = 0
    for number, document in enumerate(documents):
        if number % step != step // 2:
            changed.append(document)
            continue
        kind, count = count % 3, count + 1
        if kind == 0:
            sentence = f"Item {number} was looked at again, and this was found. "
            changed.append(replace(document, text=sentence + document.text))
        elif kind == 1:
            text = " ".join(reversed(document.text.split()))
            new = replace(document, document_id=f"{document.document_id}-new", text=text)
            changed += [document, new]
    temporary = corpus.documents.with_suffix(".tmp")
    with RecordWriter(temporary, DOCUMENT_SCHEMA) as writer:
        for document in changed:
            writer.write(document)
        old = store.load_report()
        writer.finish(
            replace(
                old,
                num_read=old.num_read + len(changed) - len(documents),
                num_documents=len(changed),
                num_words=sum(len(document.text.split()) for document in changed),
                digest=writer.digest(),
            )
        )
    temporary.replace(corpus.documents)
    return count


def build(target: str, is_forced: bool, results: "multiprocessing.Queue[Any]") -> None:
    """Build an index as ``cog index build`` does.

    :param target: A corpus folder.
    :param is_forced: Whether to encode every chunk.
    :param results: Where the figures go.
    """
    paths = find_project(ROOT)
    params = load_params(paths.params)
    folder = paths.model(params.model)
    corpus = CorpusPaths(Path(target))
    began = time.perf_counter()
    with show_progress("index", total=None, unit="words") as progress:
        built = build_index(
            corpus,
            model_fingerprint=fingerprint_model(folder),
            load_model=lambda: load_index_model(folder, device="auto"),
            params=params.index,
            progress=progress,
            force=is_forced,
            measure_storage=make_storage_measure(
                corpus, model_folder=folder, params=params.index, device="auto"
            ),
        )
    manifest = built.manifest
    results.put(
        {
            "seconds": time.perf_counter() - began,
            "cpu_seconds": time.process_time(),
            "parts": manifest.seconds,
            "digest": manifest.digest,
            "num_chunks": manifest.num_chunks,
            "num_encoded": manifest.num_encoded,
            "peak_bytes": peak_bytes(),
        }
    )


def run_build(target: Path, *, is_forced: bool) -> dict[str, Any]:
    """Build in a process of its own.

    :param target: A corpus folder.
    :param is_forced: Whether to encode every chunk.
    :returns: Its figures.
    """
    context = multiprocessing.get_context("spawn")
    results: multiprocessing.Queue[Any] = context.Queue()
    process = context.Process(target=build, args=(str(target), is_forced, results))
    process.start()
    found: dict[str, Any] = results.get()
    process.join()
    say(f"{found['seconds']:.1f} s, {found['cpu_seconds']:.1f} of the processor: {found['parts']}")
    return found


def main() -> None:
    """Build from nothing, after a change, and from nothing again; print ratio and digests."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", default="wiki-mini")
    parser.add_argument("--share", type=float, default=0.01)
    options = parser.parse_args()

    source = find_project(ROOT).corpus(options.corpus)
    with tempfile.TemporaryDirectory() as folder:
        target = CorpusPaths(Path(folder) / options.corpus)
        target.root.mkdir()
        for path in (source.documents, source.prompts):
            shutil.copy(path, target.root / path.name)
        say("from nothing")
        full = run_build(target.root, is_forced=True)
        num_changed = change_documents(target, share=options.share)
        say(f"after {num_changed} documents changed")
        changed = run_build(target.root, is_forced=False)
        say("from nothing again")
        again = run_build(target.root, is_forced=True)
    report(
        {
            "benchmark": "incremental",
            "cost_of_change": changed["seconds"] / again["seconds"],
            "cpu_cost_of_change": changed["cpu_seconds"] / again["cpu_seconds"],
            "changed_share": options.share,
            "num_changed_documents": num_changed,
            "is_digest_equal": changed["digest"] == again["digest"],
            "full": full,
            "changed": changed,
            "full_after_change": again,
            "corpus": options.corpus,
        }
    )


if __name__ == "__main__":
    main()
