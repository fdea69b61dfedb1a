"""Search on disk: recall against exact search, filters, what is refused, what a rebuild does."""

import shutil
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

from cog.errors import IndexingError, IndexMismatchError
from cog.index.read.reader import PhraseIndex, open_index
from cog.index.read.verify import verify_index
from cog.index.search.searcher import search_exactly
from cog.index.tables.lists import build_lists
from cog.index.tables.store import StoreReader
from cog.index.versions.manifest import load_manifest
from cog.paths import CorpusPaths
from cog.progress import SilentProgress
from tests.index.hash_model import (
    PARAMS,
    HashModel,
    HashRetriever,
    build,
    make_documents,
    write_corpus,
)

PARAMS_OF_LISTS = replace(PARAMS, ivf_threshold_rows=100, min_recall=0.3)
LICENCES = ("CC0-1.0", "MIT", "it's a 'licence'")
NUM_DOCUMENTS = 300


class VectorsOf(HashRetriever):
    """Gives each text a vector by its hash: random ones have no lists worth the name."""

    def encode_texts(self, texts: list[str]) -> np.ndarray:
        seeds = [zlib.crc32(text.encode()) for text in texts]
        vectors = np.stack([np.random.default_rng(s).standard_normal(self.dim) for s in seeds])
        return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PhraseIndex]:
    root = tmp_path_factory.mktemp("listed")
    corpus = CorpusPaths(root / "corpora" / "tiny")
    documents = [
        replace(each, licence=LICENCES[number % 3 if number else 0], document_id=f"it's {number}")
        for number, each in enumerate(make_documents(NUM_DOCUMENTS))
    ]
    write_corpus(corpus, documents)
    build(corpus, params=PARAMS_OF_LISTS)
    with open_index(corpus) as index:
        yield index


def test_index_above_the_threshold_has_lists(listed: PhraseIndex) -> None:
    search = listed.parts[0].manifest.search
    assert search.kind == "lists"
    assert search.num_rows == listed.num_chunks > 1000
    assert search.num_lists > search.num_probes >= 1
    assert 0.3 <= search.recall <= 1
    assert verify_index(listed, progress=SilentProgress()).num_chunks == search.num_rows


def test_lists_find_most_of_what_exact_search_finds(listed: PhraseIndex) -> None:
    stored = np.concatenate(list(listed.parts[0].iter_vectors()))
    vectors = stored[::40]
    exact = search_exactly(listed.parts[0].iter_vectors(), vectors, top_k=10)
    found = listed.search_chunks(vectors, top_k=10)
    of_rows = (vectors[:, None] * stored[found.rows]).sum(axis=2)
    np.testing.assert_allclose(found.scores, of_rows, atol=1e-5)
    assert (np.diff(found.scores) <= 1e-6).all()
    worst = exact.scores[:, -1:]
    assert (found.scores >= worst - 1e-5).mean() > 0.5
    everything = listed.search_chunks(vectors[:2], top_k=10**6).rows  # more than a list holds
    assert [sorted(row) for row in everything.tolist()] == [list(range(len(stored)))] * 2
    assert listed.search_chunks(vectors[:2], top_k=0).rows.shape == (2, 0)
    assert listed.search_chunks(vectors[:0], top_k=3).rows.shape == (0, 3)


@pytest.mark.parametrize("licences", [LICENCES, LICENCES[1:], LICENCES[2:]])
@pytest.mark.parametrize("excluded", [(), (0, 5, NUM_DOCUMENTS - 1)])
@pytest.mark.parametrize("max_exact", [0, 4096])
def test_filters_leave_what_a_mask_leaves(
    listed: PhraseIndex,
    monkeypatch: pytest.MonkeyPatch,
    licences: tuple[str, ...],
    excluded: tuple[int, ...],
    max_exact: int,
) -> None:
    monkeypatch.setattr("cog.index.search.searcher.MAX_EXACT_ROWS", max_exact)
    documents = listed.chunk_documents()
    of_document = np.array([LICENCES[i % 3] for i in range(NUM_DOCUMENTS)])
    mask = np.isin(of_document, licences)[documents] & ~np.isin(documents, excluded)
    allowed = listed.allow(licences, excluded=excluded)
    assert allowed.num_chunks == mask.sum()
    chunk_ids = np.random.default_rng(0).integers(0, listed.num_chunks, 99)
    np.testing.assert_array_equal(allowed.admits(chunk_ids), mask[chunk_ids])
    vectors = next(listed.parts[0].iter_vectors())[:3]
    found = listed.search_chunks(vectors, top_k=10**6, allowed=allowed).rows
    assert [sorted(row) for row in found.tolist()] == [np.flatnonzero(mask).tolist()] * 3
    near = listed.search_chunks(vectors, top_k=10, allowed=allowed)
    assert mask[near.rows].all()
    stored = np.concatenate(list(listed.parts[0].iter_vectors()))
    exact = np.sort(np.where(mask, vectors @ stored.T, -2))[:, -10:]
    share = (near.scores >= exact[:, :1] - 1e-5).mean()
    assert share == 1 if max_exact else share > 0.3


def test_a_filter_that_leaves_nothing_finds_nothing(listed: PhraseIndex) -> None:
    for allowed in (listed.allow([]), listed.allow(LICENCES, excluded=range(NUM_DOCUMENTS))):
        assert allowed.num_chunks == 0
        vectors = np.ones((2, 12), np.float32)
        assert listed.search_chunks(vectors, top_k=4, allowed=allowed).rows.shape == (2, 0)


def test_documents_are_found_by_id_and_licence(listed: PhraseIndex) -> None:
    assert listed.count_licences() == dict.fromkeys(LICENCES, 100)
    found = listed.find_documents(["it's 7", "it's", "it's 299"])
    assert found == {"it's 7": [7], "it's": [], "it's 299": [299]}
    document = listed.find_document("it's 8")
    assert document is not None
    assert document.title == "Títle 8"


def test_lists_are_the_same_each_time(corpus: CorpusPaths) -> None:
    found = []
    for _ in range(2):
        build(corpus, params=PARAMS_OF_LISTS, force=True)
        with open_index(corpus) as index:
            vectors = next(index.parts[0].iter_vectors())[:20]
            found.append(index.search_chunks(vectors, top_k=10))
    np.testing.assert_array_equal(found[0].rows, found[1].rows)
    np.testing.assert_array_equal(found[0].scores, found[1].scores)


def test_a_build_after_a_change_reuses_vectors_and_lists_all(corpus: CorpusPaths) -> None:
    first = build(corpus, params=PARAMS_OF_LISTS).manifest
    write_corpus(corpus, make_documents(42)[1:])
    second = build(corpus, params=PARAMS_OF_LISTS).manifest
    assert 0 < second.num_encoded < first.num_chunks / 4
    assert second.search.num_rows == second.num_chunks
    assert not build(corpus, params=PARAMS_OF_LISTS).is_new
    with open_index(corpus) as index:
        verify_index(index, progress=SilentProgress())


def test_recall_below_the_threshold_is_refused_and_the_next_build_goes_on(
    corpus: CorpusPaths,
) -> None:
    params = replace(PARAMS_OF_LISTS, min_recall=0.999)
    model = HashModel(retriever=VectorsOf(dim=64))
    with pytest.raises(IndexingError) as caught:
        build(corpus, params=params, model=model)
    assert "recall@10 of 0.999" in caught.value.wanted
    assert "ivf_threshold_rows" in caught.value.run
    assert not corpus.manifest.exists()
    report = build(corpus, params=replace(params, min_recall=0.0), model=model)
    assert (report.is_new, report.manifest.num_encoded) == (True, 0)
    assert [path.name for path in corpus.index.iterdir()] == [report.manifest.folder]


@pytest.fixture
def chunks(corpus: CorpusPaths) -> Path:
    """The chunks table of an index with lists."""
    manifest = build(corpus, params=PARAMS_OF_LISTS).manifest
    return corpus.index / manifest.folder / "chunks.lance"


def test_missing_lists_are_refused_in_one_line(corpus: CorpusPaths, chunks: Path) -> None:
    shutil.rmtree(chunks / "_indices")
    with pytest.raises(IndexMismatchError, match=r"_indices.*no such file.*build tiny --force"):
        open_index(corpus)
    assert build(corpus, params=PARAMS_OF_LISTS).is_new


def test_damaged_lists_are_refused_in_one_line(corpus: CorpusPaths, chunks: Path) -> None:
    for path in chunks.glob("_indices/*/auxiliary.idx"):
        content = path.read_bytes()
        path.write_bytes(content[:50] + bytes(len(content) - 50))
    with open_index(corpus) as index:
        with pytest.raises(IndexMismatchError, match="auxiliary.idx as built.*--force"):
            verify_index(index, progress=SilentProgress())
        with pytest.raises(IndexMismatchError, match="needs readable chunks.*--force"):
            index.search_chunks(np.ones((1, 12), np.float32), top_k=1)


def test_a_table_without_its_lists_is_not_searched_row_by_row(
    corpus: CorpusPaths, chunks: Path
) -> None:
    with open_index(corpus):
        lance.dataset(chunks).drop_index("lists")
    wanted = r"lists of \d+ chunks.* 0 in lists.*--force"
    with open_index(corpus) as index, pytest.raises(IndexMismatchError, match=wanted):
        index.search_chunks(np.ones((1, 12), np.float32), top_k=1)


def test_an_index_with_lists_of_another_kind_is_built_anew(
    corpus: CorpusPaths, chunks: Path
) -> None:
    manifest = load_manifest(corpus)
    older = corpus.manifest.read_text().replace('"kind": "lists"', '"kind": "ivf"')
    corpus.manifest.write_text(older)
    with pytest.raises(IndexMismatchError, match="search by flat or lists.*ivf.*index build tiny"):
        open_index(corpus)
    report = build(corpus, params=PARAMS_OF_LISTS)
    assert (report.is_new, report.manifest.num_encoded) == (True, 0)
    assert report.manifest.digest == manifest.digest


def test_rows_of_several_files_are_told_apart(listed: PhraseIndex, tmp_path: Path) -> None:
    (part,) = listed.parts
    folder = tmp_path / "tables"
    shutil.copytree(part.folder, folder)
    shutil.rmtree(folder / "chunks.lance")
    rows = part.take("chunks", np.arange(listed.num_chunks))
    lance.write_dataset(rows, folder / "chunks.lance", max_rows_per_file=100)
    num_lists = build_lists(part.iter_vectors, folder=folder, num_rows=rows.num_rows, dim=12)
    store = StoreReader(folder, "tiny")
    vectors = next(part.iter_vectors())[::90]
    found, scores = store.find_nearest(vectors, 10, num_lists, "")
    exact = search_exactly(part.iter_vectors(), vectors, top_k=10)
    np.testing.assert_allclose(scores, exact.scores, atol=1e-5)
    stored = np.concatenate(list(part.iter_vectors()))
    np.testing.assert_allclose((vectors[:, None] * stored[found]).sum(axis=2), scores, atol=1e-5)


@pytest.mark.slow
def test_each_chunk_lies_in_its_nearest_list_however_many_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cog.index.tables.lists.count_lists", lambda _: 4500)
    random = np.random.default_rng(0)
    topics = random.standard_normal((60, 384))[random.integers(0, 60, 20000)]
    vectors = (topics + random.standard_normal((20000, 384))).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), 384)
    lance.write_dataset(pa.table({"vector": column}), tmp_path / "chunks.lance")
    build_lists(lambda: iter([vectors]), folder=tmp_path, num_rows=20000, dim=384)
    chunks = lance.dataset(tmp_path / "chunks.lance")
    for row in range(0, 20000, 400):
        nearest = {"column": "vector", "q": vectors[row], "k": 50, "nprobes": 1}
        found = chunks.to_table(columns=["_distance"], nearest=nearest, with_row_id=True)
        assert row in found.column("_rowid").to_pylist()
