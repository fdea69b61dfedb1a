"""Incremental builds: what changed is encoded, and the result is that of a build from nothing."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cog.errors import IndexMismatchError
from cog.index.read.reader import open_index
from cog.index.read.verify import verify_index
from cog.index.records import Manifest, StorageCost
from cog.index.versions.manifest import load_manifest, save_manifest
from cog.model.words import SPECIFIC
from cog.paths import CorpusPaths
from cog.progress import SilentProgress
from cog.records import Document
from tests.index.hash_model import (
    PARAMS,
    HashModel,
    HashPhraseEncoder,
    build,
    make_documents,
    make_text,
    write_corpus,
)
from tests.told import Told


def change(documents: list[Document]) -> list[Document]:
    """One document gets a sentence, one goes, one comes, and one changes its place."""
    changed = [replace(documents[3], text=documents[3].text + " and a new end."), *documents[4:9]]
    changed += [*documents[10:], documents[0], replace(documents[1], document_id="new")]
    return [*changed, Document("fresh", "", make_text(50, seed=777), "", "MIT", "f:9")]


def verify(corpus: CorpusPaths) -> None:
    with open_index(corpus) as index:
        verify_index(index, progress=SilentProgress())


def build_from_nothing(corpus: CorpusPaths, root: Path, **settings: object) -> Manifest:
    twin = CorpusPaths(root / "twin" / "tiny")
    shutil.rmtree(twin.root, ignore_errors=True)
    twin.root.mkdir(parents=True)
    for path in (corpus.documents, corpus.prompts):
        shutil.copy(path, twin.root)
    manifest = build(twin, **settings).manifest  # type: ignore[arg-type]
    assert manifest.num_encoded > 0
    return manifest


def test_changed_corpus_encodes_what_changed_and_equals_a_build_from_nothing(
    corpus: CorpusPaths, tmp_path: Path
) -> None:
    first = build(corpus).manifest
    assert first.num_encoded == first.num_chunks
    write_corpus(corpus, change(make_documents(40)))
    second = build(corpus).manifest
    assert 0 < second.num_encoded < 10
    whole = build_from_nothing(corpus, tmp_path)
    assert second.digest == whole.digest != first.digest
    assert whole.num_encoded == whole.num_chunks
    derived = [name for name in second.files if name.endswith(".npy")]
    assert len(derived) == 4  # contexts and word counts, byte for byte
    assert all(second.files[name] == whole.files[name] for name in derived)
    verify(corpus)
    write_corpus(corpus, make_documents(40))
    third = build(corpus).manifest
    assert 0 < third.num_encoded < 10
    assert third.digest == first.digest


def build_in_format_2(corpus: CorpusPaths, patch: pytest.MonkeyPatch) -> Manifest:
    """Build an index as it was before there were contexts, word counts and the flag SPECIFIC."""
    with patch.context() as context:
        for module in ("building.assembly", "tables.digest"):
            context.setattr(f"cog.index.{module}.FORMAT_VERSION", 2)
        context.setattr("cog.index.versions.manifest.FORMAT_VERSION", 2)
        context.setattr("cog.model.words.SPECIFIC", np.uint8(0))
        manifest = build(corpus).manifest
    folder = corpus.index / manifest.folder
    shutil.rmtree(folder / "contexts")
    (folder / "word_counts.npy").unlink()
    files = {name: each for name, each in manifest.files.items() if not name.endswith(".npy")}
    save_manifest(corpus.manifest, replace(manifest, files=files))
    return load_manifest(corpus, oldest=2)


@pytest.mark.parametrize("force", [False, True])
def test_vectors_of_an_older_format_are_taken_over_unless_forced(
    corpus: CorpusPaths,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    force: bool,
) -> None:
    old = build_in_format_2(corpus, monkeypatch)
    with pytest.raises(IndexMismatchError, match="format 3.*found: format 2.*cog index build tiny"):
        verify(corpus)
    progress = Told()
    new = build(corpus, force=force, progress=progress).manifest
    assert new.num_encoded == (new.num_chunks if force else 0)
    end = "nothing can be kept" if force else "stored vectors are taken over"
    said = "the index of tiny has format 2, cog reads format 3: all of it is built anew; "
    assert progress.lines[0] == said + end
    assert new.digest == build_from_nothing(corpus, tmp_path).digest != old.digest
    assert [path.name for path in corpus.index.iterdir()] == [new.folder]
    verify(corpus)
    with open_index(corpus) as index:
        assert (index.gather_chunks(np.arange(9)).word_flags & SPECIFIC).any()


def test_removed_documents_cost_no_encoding(corpus: CorpusPaths) -> None:
    build(corpus)
    write_corpus(corpus, make_documents(40)[5:20])
    model = HashModel()
    manifest = build(corpus, model=model).manifest
    assert (manifest.num_encoded, model.phrase_encoder.batches) == (0, [])
    verify(corpus)


def test_equal_chunks_of_one_build_are_encoded_once(tmp_path: Path) -> None:
    corpus = CorpusPaths(tmp_path / "corpora" / "tiny")
    document = make_documents(1)[0]
    write_corpus(corpus, [replace(document, document_id=f"d{i}") for i in range(3)])
    manifest = build(corpus).manifest
    assert manifest.num_chunks == 3 * manifest.num_encoded
    verify(corpus)


@pytest.mark.parametrize(
    ("model", "params", "force"),
    [
        (HashModel(fingerprint="b" * 64), PARAMS, False),
        (HashModel(numerics="another machine"), PARAMS, False),
        (HashModel(), replace(PARAMS, vector_dtype="float16"), False),
        (HashModel(), PARAMS, True),
    ],
    ids=["model", "numerics", "dtype", "force"],
)
def test_nothing_is_reused_that_another_build_would_not_give(
    corpus: CorpusPaths, model: HashModel, params: object, force: bool
) -> None:
    build(corpus)
    write_corpus(corpus, make_documents(41))
    manifest = build(corpus, model=model, params=params, force=force).manifest  # type: ignore[arg-type]
    assert manifest.num_encoded == manifest.num_chunks


class StoppingEncoder(HashPhraseEncoder):
    """Stops after some batches, as a machine that is switched off does."""

    def encode_chunks(self, texts: Sequence[str], word_spans: Sequence[np.ndarray]) -> list:
        if len(self.batches) == 20:
            raise KeyboardInterrupt
        return super().encode_chunks(texts, word_spans)


def test_stopped_build_goes_on_where_it_stopped(corpus: CorpusPaths, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        build(corpus, model=HashModel(phrase_encoder=StoppingEncoder()))
    assert not corpus.manifest.exists()
    (parts,) = corpus.index.iterdir()
    manifest = build(corpus).manifest
    assert 0 < manifest.num_encoded <= manifest.num_chunks - PARAMS.commit_chunks
    assert manifest.digest == build_from_nothing(corpus, tmp_path).digest
    assert not parts.exists()
    verify(corpus)


def test_builds_that_stop_again_and_again_leave_one_folder(corpus: CorpusPaths) -> None:
    build(corpus)
    for i in range(3):
        write_corpus(corpus, make_documents(60 + i, num_words=70))
        with pytest.raises(KeyboardInterrupt):
            build(corpus, model=HashModel(phrase_encoder=StoppingEncoder()))
        assert len(list(corpus.index.iterdir())) <= 3  # in place, the best so far, the last


def test_damaged_vectors_are_encoded_again(corpus: CorpusPaths, tmp_path: Path) -> None:
    first = build(corpus).manifest
    (words,) = (corpus.index / first.folder / "words.lance" / "data").iterdir()
    content = bytearray(words.read_bytes())
    content[2000:2100] = bytes(100)  # inside the vectors of some chunk
    words.write_bytes(content)
    write_corpus(corpus, make_documents(41))
    second = build(corpus).manifest
    assert second.digest == build_from_nothing(corpus, tmp_path).digest
    verify(corpus)


def test_storage_cost_holds_on_while_little_changes(corpus: CorpusPaths) -> None:
    calls = []

    def measure(_index: object) -> StorageCost:
        calls.append(1)
        return StorageCost(4, 0.01, 0.02)

    first = build(corpus, measure_storage=measure).manifest
    write_corpus(corpus, make_documents(41))
    second = build(corpus, measure_storage=measure).manifest
    assert second.storage_cost == StorageCost(4, 0.01, 0.02, measured_on=first.digest)
    write_corpus(corpus, make_documents(42))
    third = build(corpus, measure_storage=measure).manifest
    assert third.storage_cost == second.storage_cost
    assert len(calls) == 1
    write_corpus(corpus, make_documents(80))
    fourth = build(corpus, measure_storage=measure).manifest
    assert fourth.storage_cost == StorageCost(4, 0.01, 0.02)
    assert len(calls) == 2


def test_real_encoders_give_the_same_digest_whatever_was_encoded_before(
    corpus: CorpusPaths, tmp_path: Path, tiny_model: Path
) -> None:
    from cog.model.load import load_index_model

    model = load_index_model(tiny_model)
    write_corpus(corpus, make_documents(12))
    build(corpus, model=model)  # type: ignore[arg-type]
    write_corpus(corpus, change(make_documents(12)))
    second = build(corpus, model=model).manifest  # type: ignore[arg-type]
    assert 0 < second.num_encoded < second.num_chunks / 2
    assert second.digest == build_from_nothing(corpus, tmp_path, model=model).digest
    verify(corpus)
