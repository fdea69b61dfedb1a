"""Building: counts, digests, sizes, what is refused and what is left alone."""

import json
import re
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cog.errors import CorpusError, IndexingError
from cog.index.building.encoding import PROBES
from cog.index.read.reader import PhraseIndex, open_index
from cog.index.read.verify import verify_index
from cog.index.records import StorageCost
from cog.paths import CorpusPaths
from cog.progress import SilentProgress
from cog.records import Document
from tests.index.hash_model import (
    PARAMS,
    HashModel,
    HashPhraseEncoder,
    HashRetriever,
    LeaningEncoder,
    Limits,
    build,
    make_documents,
    make_text,
    write_corpus,
)
from tests.told import Told

MAX_FILES = 17  # per table a data file, a version, a transaction, a hint; contexts, word counts


def open_tiny(corpus: CorpusPaths) -> PhraseIndex:
    return open_index(corpus)


def document_of(text: str, *, number: int = 0) -> Document:
    return Document(f"d{number}", "", text, "", "CC0-1.0", "f:1")


def test_manifest_states_what_was_built(corpus: CorpusPaths) -> None:
    progress = Told()
    manifest = build(corpus, progress=progress).manifest
    assert manifest.documents.num_in == 42
    assert manifest.documents.num_indexed == 40
    assert sum(manifest.documents.skipped.values()) == 2
    assert manifest.search.num_rows == manifest.num_chunks
    assert (manifest.search.kind, manifest.search.recall) == ("flat", 1.0)
    # a chunk that begins inside a white-space separated word counts it again
    assert 40 * 60 <= progress.amount < 40 * 60 + manifest.num_chunks // 10
    assert manifest.seconds["words_per_second"] > 0
    assert manifest.sizes["total"] == sum(entry.size_bytes for entry in manifest.files.values())
    assert json.loads(corpus.manifest.read_text())["digest"] == manifest.digest
    assert [path.name for path in corpus.index.iterdir()] == [manifest.folder]
    assert manifest.folder == manifest.digest[:16]


def test_many_writes_leave_few_files(corpus: CorpusPaths) -> None:
    manifest = build(corpus, params=replace(PARAMS, commit_chunks=4)).manifest
    assert manifest.num_chunks / 4 >= 40
    files = [path for path in corpus.index.rglob("*") if path.is_file()]
    assert len(files) == len(manifest.files) <= MAX_FILES
    assert manifest.sizes["after_compaction"] < manifest.sizes["before_compaction"]


def test_two_builds_have_one_digest_whatever_the_window(corpus: CorpusPaths) -> None:
    first = build(corpus).manifest
    second = build(corpus, force=True).manifest
    third = build(corpus, params=replace(PARAMS, commit_chunks=7)).manifest
    assert first.digest == second.digest == third.digest
    assert first.folder != second.folder  # the old one served until the new one was in place
    assert [path.name for path in corpus.index.iterdir()] == [third.folder]


def test_digest_depends_on_documents_model_and_format(corpus: CorpusPaths) -> None:
    digests = {build(corpus).manifest.digest}
    digests.add(build(corpus, model=HashModel(fingerprint="b" * 64)).manifest.digest)
    halves = replace(PARAMS, vector_dtype="float16")
    digests.add(build(corpus, params=halves).manifest.digest)
    documents = make_documents(40)
    documents[7] = replace(documents[7], title="Other")
    write_corpus(corpus, documents)
    digests.add(build(corpus).manifest.digest)
    assert len(digests) == 4


def test_nothing_is_built_again_unless_something_changed(corpus: CorpusPaths) -> None:
    first = build(corpus)
    stated = corpus.manifest.read_bytes()
    model = HashModel(phrase_encoder=HashPhraseEncoder())
    again = build(corpus, model=model)
    assert (first.is_new, again.is_new) == (True, False)
    assert not model.phrase_encoder.batches
    assert corpus.manifest.read_bytes() == stated
    assert build(corpus, params=replace(PARAMS, min_recall=0.5)).is_new


def test_damaged_index_is_built_again(corpus: CorpusPaths) -> None:
    manifest = build(corpus).manifest
    next((corpus.index / manifest.folder).rglob("*.lance/data/*.lance")).unlink()
    assert build(corpus).is_new
    with open_tiny(corpus) as index:
        verify_index(index, progress=SilentProgress())


@pytest.mark.parametrize("tolerance", [0.0, 1e-4])
def test_vectors_that_move_with_their_batch_are_told_of_and_encoded_alone_or_allowed(
    corpus: CorpusPaths, tolerance: float
) -> None:
    said: list[str] = []

    class Told(SilentProgress):
        def say(self, message: str) -> None:
            said.append(message)

    model = HashModel(phrase_encoder=LeaningEncoder(), batch_tolerance=tolerance)
    params = replace(PARAMS, commit_chunks=200)
    build(corpus, model=model, params=params, progress=Told())
    (line,) = [each for each in said if "with the batch" in each]
    assert re.match(r"vectors move by \de-\d\d of their largest value", line)
    assert line.endswith("differ in as much" if tolerance else "takes several times as long")
    built = model.phrase_encoder.batches[2 * len(PROBES) :]
    assert max(built) > 1 if tolerance else set(built) == {1}


@pytest.mark.parametrize("num_chunks", [1, 3, 100])
def test_small_corpora_are_whole(tmp_path: Path, num_chunks: int) -> None:
    corpus = CorpusPaths(tmp_path / "corpora" / "small")
    write_corpus(corpus, make_documents(num_chunks, num_words=9))
    build(corpus)
    with open_tiny(corpus) as index:
        assert index.num_chunks == num_chunks
        vectors = HashModel().retriever.encode_texts(["river house"])
        found = index.search_chunks(vectors, top_k=1024).rows
        assert sorted(found[0].tolist()) == list(range(num_chunks))
        assert index.gather_chunks(found[0]).word_offsets[-1] == index.num_words
        assert verify_index(index, progress=SilentProgress()).num_chunks == num_chunks


def test_documents_without_words_are_counted(tmp_path: Path) -> None:
    corpus = CorpusPaths(tmp_path / "corpora" / "odd")
    texts = ["", "x" * 200, make_text(50, seed=1), "short " + "y" * 200 + " tail"]
    write_corpus(corpus, [document_of(text, number=i) for i, text in enumerate(texts)])
    manifest = build(corpus).manifest
    assert manifest.documents.num_indexed == 2
    assert manifest.documents.skipped["no-words"] == 2
    assert manifest.skipped_words == 2
    with open_tiny(corpus) as index:
        assert [index.get_documents([i])[i].document_id for i in (0, 1)] == ["d2", "d3"]
        verify_index(index, progress=SilentProgress())


def test_corpus_without_words_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    corpus = CorpusPaths(tmp_path / "corpora" / "empty")
    write_corpus(corpus, [document_of("z" * 300)])
    with pytest.raises(IndexingError, match="1 documents without"):
        build(corpus)
    assert list(corpus.index.iterdir()) == []
    assert not corpus.manifest.exists()


def test_missing_documents_are_refused_with_the_command(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="prepare"):
        build(CorpusPaths(tmp_path / "corpora" / "none"))


def test_failing_encoder_leaves_the_old_index(corpus: CorpusPaths) -> None:
    class FailingEncoder(HashPhraseEncoder):
        def encode_chunks(self, texts: list[str], word_spans: list[np.ndarray]) -> list:
            if len(self.batches) == 5:
                raise RuntimeError("out of memory")
            return super().encode_chunks(texts, word_spans)

    old = build(corpus).manifest
    with pytest.raises(RuntimeError, match="out of memory"):
        build(corpus, force=True, model=HashModel(phrase_encoder=FailingEncoder()))
    assert [path.name for path in corpus.index.iterdir()] == [old.folder]
    with open_tiny(corpus) as index:
        verify_index(index, progress=SilentProgress())


def test_vector_that_is_not_finite_is_refused(corpus: CorpusPaths) -> None:
    class BrokenEncoder(HashPhraseEncoder):
        def encode_chunks(self, texts: list[str], word_spans: list[np.ndarray]) -> list:
            encoded = super().encode_chunks(texts, word_spans)
            encoded[0].start[0, 0] = np.nan
            return encoded

    with pytest.raises(IndexingError, match="finite"):
        build(corpus, model=HashModel(phrase_encoder=BrokenEncoder()))


def test_retriever_vector_that_is_not_finite_is_refused(corpus: CorpusPaths) -> None:
    class BrokenRetriever(HashRetriever):
        def encode_texts(self, texts: list[str]) -> np.ndarray:
            return super().encode_texts(texts) * np.float32(np.nan)

    with pytest.raises(IndexingError, match="retriever"):
        build(corpus, model=HashModel(retriever=BrokenRetriever()))


def test_storage_cost_is_measured_on_the_finished_index(corpus: CorpusPaths) -> None:
    seen = []

    def measure(index: PhraseIndex) -> StorageCost:
        seen.append(index.gather_chunks(np.arange(index.num_chunks)))
        return StorageCost(4, 0.01, 0.02)

    manifest = build(corpus, measure_storage=measure).manifest
    assert manifest.storage_cost == StorageCost(4, 0.01, 0.02)
    assert len(seen[0].word_flags) == manifest.num_words
    with open_tiny(corpus) as index:
        assert index.parts[0].manifest == manifest


def test_reader_keeps_the_old_version_until_it_closes(corpus: CorpusPaths) -> None:
    old = build(corpus).manifest
    with open_tiny(corpus) as index:
        new = build(corpus, model=HashModel(fingerprint="b" * 64)).manifest
        assert {path.name for path in corpus.index.iterdir()} == {old.folder, new.folder}
        assert len(index.gather_chunks(np.arange(5)).chunk_ids) == 5
    build(corpus, model=HashModel(fingerprint="b" * 64))
    assert [path.name for path in corpus.index.iterdir()] == [new.folder]


def test_leftovers_of_killed_builds_are_removed(corpus: CorpusPaths) -> None:
    manifest = build(corpus).manifest
    (corpus.index / ".0ab+0123456789ab" / "words.lance").mkdir(parents=True)
    (corpus.index / "0123456789abcdef").mkdir()
    (corpus.root / ".manifest.json~0123456789ab").mkdir()
    assert not build(corpus).is_new
    assert [path.name for path in corpus.index.iterdir()] == [manifest.folder]
    names = {path.name for path in corpus.root.iterdir()}
    assert names == {"documents.parquet", "index", "manifest.json", "prompts.parquet"}


def test_unreadable_manifest_costs_nothing_before_the_new_one(corpus: CorpusPaths) -> None:
    build(corpus)
    corpus.manifest.write_text("{")

    class StoppingEncoder(HashPhraseEncoder):
        def encode_chunks(self, texts: list[str], word_spans: list[np.ndarray]) -> list:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(corpus, model=HashModel(phrase_encoder=StoppingEncoder()))
    assert len(list(corpus.index.iterdir())) == 1
    assert build(corpus).is_new
    assert len(list(corpus.index.iterdir())) == 1


def test_second_builder_waits_and_finds_the_index(corpus: CorpusPaths) -> None:
    inside, go_on = threading.Event(), threading.Event()

    class SlowEncoder(HashPhraseEncoder):
        def encode_chunks(self, texts: list[str], word_spans: list[np.ndarray]) -> list:
            inside.set()
            go_on.wait(20)
            return super().encode_chunks(texts, word_spans)

    class Waiting(Told):
        def say(self, message: str) -> None:
            super().say(message)
            go_on.set()

    reports = []
    slow = HashModel(phrase_encoder=SlowEncoder())
    thread = threading.Thread(target=lambda: reports.append(build(corpus, model=slow)))
    thread.start()
    assert inside.wait(20)
    progress = Waiting()
    second = build(corpus, progress=progress)
    thread.join(20)
    assert "waiting" in progress.lines[0]
    assert (reports[0].is_new, second.is_new) == (True, False)
    assert reports[0].manifest.digest == second.manifest.digest


def test_two_processes_at_once_both_end_well(corpus: CorpusPaths) -> None:
    command = [sys.executable, "-m", "tests.index.build_process", str(corpus.root)]
    processes = [
        subprocess.Popen([*command, "--force"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    results = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], results
    assert [errors for _, errors in results] == [b"", b""]  # LanceDB is quiet
    digests = {out.decode().split()[-1] for out, _ in results}
    assert len(digests) == 1
    with open_tiny(corpus) as index:
        assert verify_index(index, progress=SilentProgress()).digest in digests
    assert len(list(corpus.index.iterdir())) == 1


def test_memory_of_a_long_document_is_bounded_by_windows(tmp_path: Path) -> None:
    corpus = CorpusPaths(tmp_path / "corpora" / "long")
    write_corpus(corpus, [document_of(make_text(4000, seed=0))])
    encoder = HashPhraseEncoder()
    model = HashModel(config=Limits(), phrase_encoder=encoder)
    manifest = build(corpus, model=model).manifest
    assert manifest.documents.num_indexed == 1
    assert manifest.num_chunks > 10 * PARAMS.commit_chunks
    assert max(encoder.batches[2 * len(PROBES) :]) <= PARAMS.commit_chunks
    with open_tiny(corpus) as index:
        verify_index(index, progress=SilentProgress())
