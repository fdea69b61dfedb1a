"""Builds, generations and switches of one corpus at once: all end well, all citations are right."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from cog.corpus.documents import DOCUMENT_SCHEMA, DocumentStore, RecordWriter
from cog.index.versions.activation import switch_corpus
from cog.index.versions.folders import hold_build_lock
from cog.index.versions.manifest import load_manifest
from cog.paths import CorpusPaths, ProjectPaths
from cog.records import Document
from cog.switch_log import load_history
from tests.built_project import build_village

MAX_SECONDS = 900
START = "import sys; from cog.cli.main import main; main()"


def start(project: ProjectPaths, *words: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", START, "--project", str(project.root), *words],
        cwd=Path(__file__).parents[1],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def wait_for(process: "subprocess.Popen[str]", words: str) -> None:
    assert process.stderr is not None
    assert any(words in line for line in process.stderr), "it ended without a word"


def change_documents(corpus: CorpusPaths) -> None:
    """Put a sentence before every text, so that every citation of the old text would be wrong."""
    store = DocumentStore(corpus.documents)
    report = store.load_report()
    temporary = corpus.documents.with_suffix(".tmp")
    with RecordWriter(temporary, DOCUMENT_SCHEMA) as writer:
        for document in store.iter_documents():
            writer.write(replace(document, text=f"Once upon a time. {document.text}"))
        writer.finish(replace(report, digest=writer.digest()))
    temporary.replace(corpus.documents)


def read_texts(corpus: CorpusPaths) -> dict[str, Document]:
    return {each.document_id: each for each in DocumentStore(corpus.documents).iter_documents()}


def finish(processes: list["subprocess.Popen[str]"]) -> list[tuple[str, str]]:
    deadline = time.monotonic() + MAX_SECONDS
    try:
        results = [each.communicate(timeout=deadline - time.monotonic()) for each in processes]
    except subprocess.TimeoutExpired:
        for each in processes:
            each.kill()
            each.communicate()
        raise
    assert [each.returncode for each in processes] == [0] * len(processes), results
    return results


def check_citations(lines: list[str], texts: dict[str, dict[str, Document]]) -> int:
    """Every copy is in the document of the version that the text was written with."""
    num_citations = 0
    for line in lines:
        generation = json.loads(line)
        documents = texts[generation["index"]]
        for segment in generation["segments"]:
            if segment["from"] == "corpus":
                text = documents[segment["document_id"]].text
                assert text[segment["char_start"] : segment["char_end"]] == segment["text"]
                num_citations += 1
    return num_citations


def run_at_once(project: ProjectPaths, *, num_builds: int, num_generations: int) -> int:
    corpus = project.corpus("village")
    switch_corpus(project, "village")
    texts = {load_manifest(corpus).digest: read_texts(corpus)}
    change_documents(corpus)
    words = ["generate", "--prefix", "The old mill stands", "--max-new-tokens", "16", "--json"]
    # builds begin when all of them are there, however slowly they start
    with hold_build_lock(project.corpus("village"), say=None):
        build = ("index", "build", "village", "--force")
        builds = [start(project, *build) for _ in range(num_builds)]
        texts_at_once = [start(project, *words, "--seed", str(i)) for i in range(num_generations)]
        for each in builds:
            wait_for(each, f"another process builds village (pid {os.getpid()} on ")
    finish(builds)
    texts[load_manifest(corpus).digest] = read_texts(corpus)
    assert len(texts) == 2
    switches = [start(project, "switch", "--corpus", "village", "--json") for _ in range(2)]
    later = [start(project, *words, "--seed", str(seed)) for seed in range(num_generations // 2)]
    changes = [json.loads(output)["changed"] for output, _ in finish(switches)]
    assert sorted(changes) == [False, True]
    lines = [output for output, _ in finish([*texts_at_once, *later])]
    finish([start(project, "index", "build", "village")])  # takes away what a text still read
    assert len(load_history(project)[0]) == 2
    assert [path.name for path in corpus.index.iterdir()] == [load_manifest(corpus).folder]
    finish([start(project, "index", "verify", "village")])
    return check_citations(lines, texts)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("num_builds", "num_generations"),
    [(2, 2), (4, 10)],
    ids=["two-builds-two-generations", "four-builds-ten-generations"],
)
def test_builds_generations_and_switches_at_once_end_well(
    tmp_path: Path, tiny_model: Path, num_builds: int, num_generations: int
) -> None:
    project = build_village(tmp_path / "project", tiny_model)
    num_citations = run_at_once(project, num_builds=num_builds, num_generations=num_generations)
    assert num_citations > 0
