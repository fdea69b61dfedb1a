"""Reading: gathering against a plain loop over rows, search against a sort, what is refused."""

import json
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cog.errors import IndexMismatchError, IndexNotBuiltError
from cog.index.chunking import hash_words
from cog.index.read import reader
from cog.index.read.reader import PhraseIndex, open_index
from cog.index.records import GatheredChunks
from cog.index.tables.store import CHUNKS, WORDS
from cog.index.versions.folders import Keep
from cog.paths import CorpusPaths
from tests.index.hash_model import (
    PARAMS,
    HashModel,
    HashPhraseEncoder,
    HashRetriever,
    build,
    make_documents,
    write_corpus,
)

ARRAYS = [name for name in GatheredChunks.__slots__ if name != "codes"]


def gather_slowly(index: PhraseIndex, chunk_ids: np.ndarray) -> list[dict]:
    """Rows of the words table by a loop over every row, one word at a time."""
    rows = [row for batch in index.parts[0].iter_rows(WORDS) for row in batch.to_pylist()]
    dtype = index.vectors.dtype
    words, num_tokens = [], 0
    for chunk_id in chunk_ids.tolist():
        row = rows[chunk_id]
        chars = np.frombuffer(row["word_chars"], np.int32).tolist()
        tokens = np.frombuffer(row["word_tokens"], np.int32).tolist()
        starts = np.frombuffer(row["start_vectors"], dtype).reshape(-1, index.vectors.dim)
        ends = np.frombuffer(row["end_vectors"], dtype).reshape(-1, index.vectors.dim)
        for i in range(len(row["word_flags"])):
            words.append(
                {
                    "chunk": chunk_id,
                    "document": row["document_ordinal"],
                    "start": starts[i].tolist(),
                    "end": ends[i].tolist(),
                    "start_scale": np.frombuffer(row["start_scales"], np.float32)[i],
                    "end_scale": np.frombuffer(row["end_scales"], np.float32)[i],
                    "flags": row["word_flags"][i],
                    "hash": np.frombuffer(row["word_hashes"], np.uint64)[i],
                    "chars": chars[i : i + 2],
                    "tokens": [tokens[i] + num_tokens, tokens[i + 1] + num_tokens],
                    "token_ids": np.frombuffer(row["token_ids"], np.int32)[
                        tokens[i] : tokens[i + 1]
                    ].tolist(),
                }
            )
        num_tokens += len(row["token_ids"]) // 4
    return words


def list_words(gathered: GatheredChunks) -> list[dict]:
    words = []
    for i, chunk_id in enumerate(gathered.chunk_ids.tolist()):
        for w in range(gathered.word_offsets[i], gathered.word_offsets[i + 1]):
            first, last = gathered.word_tokens[w]
            words.append(
                {
                    "chunk": chunk_id,
                    "document": gathered.document_ordinals[i],
                    "start": gathered.start_vectors[w].tolist(),
                    "end": gathered.end_vectors[w].tolist(),
                    "start_scale": gathered.start_scales[w],
                    "end_scale": gathered.end_scales[w],
                    "flags": gathered.word_flags[w],
                    "hash": gathered.word_hashes[w],
                    "chars": gathered.word_chars[w].tolist(),
                    "tokens": [first, last],
                    "token_ids": gathered.token_ids[first:last].tolist(),
                }
            )
    return words


@pytest.mark.parametrize("num_chunks", [1, 7, 150])  # 150 is read in two takes
def test_gather_equals_a_loop_over_rows(index: PhraseIndex, num_chunks: int) -> None:
    chunk_ids = np.random.default_rng(num_chunks).permutation(index.num_chunks)[:num_chunks]
    gathered = index.gather_chunks(chunk_ids)
    assert list_words(gathered) == gather_slowly(index, chunk_ids)
    assert gathered.word_offsets[-1] == len(gathered.word_flags)
    for name in ARRAYS:
        assert getattr(gathered, name).flags.c_contiguous, name


def test_gather_has_the_stated_types(index: PhraseIndex) -> None:
    gathered = index.gather_chunks(np.array([3, 1]))
    types = {name: getattr(gathered, name).dtype.name for name in ARRAYS}
    assert types == {
        "chunk_ids": "int64",
        "document_ordinals": "int64",
        "word_offsets": "int64",
        "start_vectors": "int8",
        "end_vectors": "int8",
        "start_scales": "float32",
        "end_scales": "float32",
        "word_flags": "uint8",
        "word_hashes": "uint64",
        "word_chars": "int32",
        "word_tokens": "int64",
        "token_ids": "int32",
    }


def test_gather_of_float16(corpus: CorpusPaths) -> None:
    build(corpus, params=replace(PARAMS, vector_dtype="float16"))
    with open_tiny(corpus) as index:
        chunk_ids = np.array([4, 2, 9])
        gathered = index.gather_chunks(chunk_ids)
        assert gathered.start_vectors.dtype == np.float16
        assert list_words(gathered) == gather_slowly(index, chunk_ids)


def test_gather_of_nothing_is_empty(index: PhraseIndex) -> None:
    gathered = index.gather_chunks(np.zeros(0, np.int64))
    assert gathered.word_offsets.tolist() == [0]
    assert gathered.start_vectors.shape == (0, index.vectors.dim)


@pytest.mark.parametrize("chunk_ids", [[-1], [10_000], [1, 1]])
def test_gather_of_wrong_ids_is_refused(index: PhraseIndex, chunk_ids: list[int]) -> None:
    with pytest.raises(ValueError, match="chunk ids"):
        index.gather_chunks(np.array(chunk_ids))


def test_words_are_slices_of_their_document(index: PhraseIndex) -> None:
    gathered = index.gather_chunks(np.arange(index.num_chunks))
    documents = index.get_documents(range(40))
    ordinals = np.repeat(gathered.document_ordinals, np.diff(gathered.word_offsets))
    encoder = HashPhraseEncoder()
    for w in range(0, len(ordinals), 37):
        text = documents[ordinals[w]].text
        first, last = gathered.word_chars[w].tolist()
        assert gathered.word_hashes[w] == hash_words(text, np.array([first, last]))[0]
        word = text[first:last].removeprefix(" ")
        (exact,) = encoder.encode_chunks([word], [np.array([[0, len(word)]], np.int32)])
        stored = gathered.start_vectors[w] * gathered.start_scales[w]
        np.testing.assert_allclose(stored, exact.start[0], atol=gathered.start_scales[w] / 1.99)


def test_documents_are_what_was_indexed(index: PhraseIndex) -> None:
    wanted = make_documents(40)
    assert index.get_documents([7, 0, 39, 7]) == {i: wanted[i] for i in (7, 0, 39)}
    assert index.get_documents([]) == {}
    with pytest.raises(ValueError, match="ordinals"):
        index.get_documents([40])
    assert index.count_licences() == {"CC0-1.0": 40}
    wanted_ids = ["document-7", "document-39", "missing", "it's", "document-7"]
    found = index.find_documents(wanted_ids)
    assert found == {"document-7": [7], "document-39": [39], "missing": [], "it's": []}
    no_text = "\udcff"  # as a shell passes on what is not UTF-8
    assert index.find_documents([no_text, "document-7"]) == {no_text: [], "document-7": [7]}
    assert index.find_document(no_text) is None


def test_chunk_documents_are_those_of_gathered_chunks(index: PhraseIndex) -> None:
    ids = np.arange(index.num_chunks)
    np.testing.assert_array_equal(
        index.chunk_documents(), index.gather_chunks(ids).document_ordinals
    )


def test_search_equals_a_sort(index: PhraseIndex) -> None:
    vectors = HashRetriever().encode_texts(["river house", "stone", "apple wheel garden"])
    stored = np.concatenate(list(index.parts[0].iter_vectors()))
    scores = vectors @ stored.T
    found = index.search_chunks(vectors, top_k=20).rows
    assert found.shape == (3, 20)
    for row, ids in enumerate(found):
        np.testing.assert_allclose(scores[row, ids], np.sort(scores[row])[::-1][:20], rtol=1e-5)
    assert index.search_chunks(vectors, top_k=10_000).rows.shape == (3, index.num_chunks)


def test_search_finds_only_what_is_allowed(index: PhraseIndex) -> None:
    vectors = HashRetriever().encode_texts(["river house"])
    documents = index.chunk_documents()
    licences = index.count_licences()
    allowed = index.allow(licences, excluded=set(range(40)) - {3, 11})
    wanted = np.flatnonzero(np.isin(documents, [3, 11]))
    found = index.search_chunks(vectors, top_k=999, allowed=allowed).rows[0]
    assert sorted(found.tolist()) == wanted.tolist()
    assert allowed.num_chunks == len(wanted)
    everything = np.arange(index.num_chunks)
    np.testing.assert_array_equal(allowed.admits(everything), np.isin(everything, wanted))
    nothing = index.allow([])
    assert index.search_chunks(vectors, top_k=9, allowed=nothing).rows.shape == (1, 0)


def test_search_with_another_width_is_refused(index: PhraseIndex) -> None:
    with pytest.raises(ValueError, match="12"):
        index.search_chunks(np.zeros((1, 13), np.float32), top_k=1)


def open_tiny(
    corpus: CorpusPaths, model: str | None = None, documents: str | None = None
) -> PhraseIndex:
    return open_index(corpus, model_fingerprint=model, documents_digest_of=lambda _: documents)


def test_missing_index_is_refused_with_the_command(corpus: CorpusPaths) -> None:
    with pytest.raises(IndexNotBuiltError) as caught:
        open_tiny(corpus)
    assert caught.value.run == "cog index build tiny"


def test_other_model_is_refused_naming_both(corpus: CorpusPaths) -> None:
    build(corpus)
    with pytest.raises(IndexMismatchError) as caught:
        open_tiny(corpus, model="c" * 64)
    assert "cccccccccccccccc" in caught.value.wanted
    assert "aaaaaaaaaaaaaaaa" in caught.value.found
    assert caught.value.run == "cog index build tiny"


def test_other_documents_are_refused_naming_both(corpus: CorpusPaths) -> None:
    digest = build(corpus).manifest.documents_digest
    with pytest.raises(IndexMismatchError) as caught:
        open_tiny(corpus, documents="d" * 64)
    assert "dddddddddddddddd" in caught.value.wanted
    assert digest[:16] in caught.value.found


def test_index_of_another_corpus_is_refused(corpus: CorpusPaths) -> None:
    build(corpus)
    other = CorpusPaths(corpus.root.with_name("other"))
    shutil.copytree(corpus.root, other.root)
    with pytest.raises(IndexMismatchError, match="index of corpus other"):
        open_index(other)


def test_tables_of_another_build_are_refused(corpus: CorpusPaths) -> None:
    manifest = build(corpus).manifest
    content = json.loads(corpus.manifest.read_text())
    content["num_chunks"] += 1
    corpus.manifest.write_text(json.dumps(content))
    with pytest.raises(IndexMismatchError, match=f"{manifest.num_chunks + 1} rows of chunks"):
        open_tiny(corpus)


def test_width_comes_from_the_model(corpus: CorpusPaths) -> None:
    model = HashModel(phrase_encoder=HashPhraseEncoder(dim=5), retriever=HashRetriever(dim=7))
    build(corpus, model=model)
    with open_tiny(corpus) as index:
        assert (index.vectors.dim, index.parts[0].manifest.search.dim) == (5, 7)
        chunks = next(index.parts[0].iter_rows(CHUNKS))
        assert chunks.schema.field("vector").type.list_size == 7


def test_a_project_without_room_for_locks_can_be_read_and_that_is_told(
    corpus: CorpusPaths, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    build(corpus)
    with open_tiny(corpus):
        assert caplog.messages == []
    blocked = tmp_path / "file"
    blocked.write_text("")
    with open_tiny(replace(corpus, project=blocked)) as index:  # no lock file can be made there
        assert index.gather_chunks(np.array([0])).chunk_ids.tolist() == [0]
    (message,) = caplog.messages
    assert "without a lock" in message
    assert "a build may remove it" in message


READING = """
import os, sys
from pathlib import Path
from cog.index.read.reader import open_index
from cog.paths import CorpusPaths
with open_index(CorpusPaths(Path(sys.argv[1]))):
    pass  # so that all is imported
if os.geteuid() == 0:
    os.setgroups([])
    os.setuid(65534)
with open_index(CorpusPaths(Path(sys.argv[1]))) as index:
    print("open", flush=True)
    sys.stdin.read()
    print(len(index.get_documents(range(index.num_documents))))
"""


def test_a_build_leaves_the_version_that_another_user_reads(corpus: CorpusPaths) -> None:
    # who may neither make nor write lock files: they are the builder's
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        shared = CorpusPaths(folder / "corpora" / "tiny")
        locks = shared.home.locks
        shutil.copytree(corpus.root, shared.root)
        old = build(shared).manifest
        for path in locks.iterdir():
            path.chmod(0o444)
        locks.chmod(0o555)
        reader = subprocess.Popen(
            [sys.executable, "-c", READING, str(shared.root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert reader.stdout is not None
        assert reader.stdout.readline() == "open\n"
        locks.chmod(0o755)
        write_corpus(shared, make_documents(12))
        new = build(shared).manifest
        assert {path.name for path in shared.index.iterdir()} == {old.folder, new.folder}
        output, errors = reader.communicate("")
        assert (output, errors) == ("40\n", "")
        assert not build(shared).is_new
        assert [path.name for path in shared.index.iterdir()] == [new.folder]


def test_the_version_that_is_asked_for_is_opened_though_another_is_put_in_place_meanwhile(
    corpus: CorpusPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = build(corpus).manifest.digest
    find_version, built = reader.find_version, []

    def find_and_build(corpus_paths: CorpusPaths, wanted: str) -> CorpusPaths | None:
        place = find_version(corpus_paths, wanted)
        if not built:  # between finding and opening
            write_corpus(corpus, make_documents(12))
            keep = Keep(frozenset([digest]), 0)
            built.append(build(corpus, get_kept=lambda: keep).manifest.digest)
        return place

    monkeypatch.setattr(reader, "find_version", find_and_build)
    with open_index(corpus, digests={"tiny": digest}) as index:
        assert (index.digest, index.num_documents) == (digest, 40)
    assert built not in ([], [digest])


def test_a_local_index_opens_without_object_store_dvc_or_switching(corpus: CorpusPaths) -> None:
    build(corpus)
    program = """
import sys
from pathlib import Path
from cog.index.read.reader import open_index
from cog.paths import CorpusPaths

with open_index(CorpusPaths(Path(sys.argv[1]))) as index:
    print(len(index.gather_chunks(index.chunk_documents()[:1]).word_flags) > 0)
print(*sys.modules)
"""
    arguments = [sys.executable, "-c", program, str(corpus.root)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    found, modules = done.stdout.splitlines()
    assert found == "True"
    above = {"remote", "recorded", "resolve", "activation"}
    assert not {f"cog.index.versions.{name}" for name in above} & set(modules.split())
    assert not [name for name in modules.split() if name.split(".")[0] in ("dvc", "torch")]
