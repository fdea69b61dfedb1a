"""Inverted lists: recall against exact search, short lists, refusal below the threshold."""

import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cog.errors import IndexingError
from cog.index.read.reader import open_index
from cog.index.read.verify import verify_index
from cog.index.records import SearchQuality
from cog.index.search.searcher import (
    Neighbours,
    build_ivf,
    load_ivf_searcher,
    make_flat_searcher,
    measure_recall,
    search_exactly,
)
from cog.paths import CorpusPaths
from cog.progress import SilentProgress
from tests.index.hash_model import PARAMS, HashModel, HashRetriever, build

NUM_ROWS, DIM = 3000, 16


def make_vectors(*, num_groups: int, noise: float) -> np.ndarray:
    generator = np.random.default_rng(0)
    centres = generator.standard_normal((num_groups, DIM))
    rows = centres[generator.integers(0, num_groups, NUM_ROWS)]
    rows = rows + noise * generator.standard_normal((NUM_ROWS, DIM))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def quality_of(kind: str, *, num_lists: int = 0, num_probes: int = 0) -> SearchQuality:
    return SearchQuality(kind, DIM, NUM_ROWS, num_lists, num_probes, 10, 0.0)


def blocks_of(vectors: np.ndarray) -> Iterator[np.ndarray]:
    for start in range(0, len(vectors), 700):
        yield vectors[start : start + 700]


def test_exact_search_equals_a_sort() -> None:
    vectors = make_vectors(num_groups=20, noise=0.3)
    found = search_exactly(blocks_of(vectors), vectors[:5], top_k=12)
    scores = vectors[:5] @ vectors.T
    np.testing.assert_allclose(found.scores, -np.sort(-scores, axis=1)[:, :12], rtol=1e-5)
    np.testing.assert_allclose(np.take_along_axis(scores, found.rows, 1), found.scores, rtol=1e-5)


@pytest.mark.parametrize("top_k", [0, 1, 40, NUM_ROWS, NUM_ROWS + 1])
def test_flat_search_finds_the_best_of_what_is_allowed(top_k: int) -> None:
    vectors = make_vectors(num_groups=20, noise=0.3)
    vectors[[7, 1400, 2999]] = vectors[3]  # equal ones come by row
    searcher = make_flat_searcher(blocks_of(vectors), quality_of("flat"))
    allowed = np.random.default_rng(1).random(NUM_ROWS) < 0.7
    allowed[[3, 7, 1400]] = True, True, False
    for mask in (None, allowed, np.zeros(NUM_ROWS, dtype=bool)):
        found = searcher.search(vectors[2:5], top_k=top_k, allowed=mask)
        rows = np.arange(NUM_ROWS) if mask is None else np.flatnonzero(mask)
        scores = vectors[2:5] @ vectors.T
        wanted = rows[np.argsort(-scores[:, rows], axis=1, kind="stable")[:, :top_k]]
        assert found.rows.tolist() == wanted.tolist()
        assert found.scores.shape == found.rows.shape


def test_flat_search_is_exact() -> None:
    vectors = make_vectors(num_groups=20, noise=0.3)
    searcher = make_flat_searcher(blocks_of(vectors), quality_of("flat"))
    found = searcher.search(vectors[:9], top_k=10)
    assert measure_recall(found, search_exactly(blocks_of(vectors), vectors[:9], top_k=10)) == 1


def test_lists_on_disk_hold_every_row(tmp_path: Path) -> None:
    vectors = make_vectors(num_groups=30, noise=0.1)
    num_lists = build_ivf(lambda: blocks_of(vectors), folder=tmp_path, num_rows=NUM_ROWS, dim=DIM)
    assert {path.name for path in tmp_path.iterdir()} == {"search.faiss", "search.ivfdata"}
    moved = tmp_path.with_name("moved")
    tmp_path.rename(moved)
    searcher = load_ivf_searcher(moved, quality_of("ivf", num_lists=num_lists, num_probes=1))
    assert searcher.num_rows == NUM_ROWS
    everything = searcher.search(vectors[:2], top_k=NUM_ROWS)  # more than one list holds
    assert [sorted(row) for row in everything.rows.tolist()] == [list(range(NUM_ROWS))] * 2
    allowed = np.zeros(NUM_ROWS, bool)
    allowed[[1, 2999]] = True
    found = searcher.search(vectors[:1], top_k=5, allowed=allowed)
    assert sorted(found.rows[0].tolist()) == [1, 2999]


def test_lists_are_the_same_each_time(tmp_path: Path) -> None:
    vectors = make_vectors(num_groups=30, noise=0.1)
    found = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        num_lists = build_ivf(
            lambda: blocks_of(vectors), folder=tmp_path / name, num_rows=NUM_ROWS, dim=DIM
        )
        quality = quality_of("ivf", num_lists=num_lists, num_probes=2)
        found.append(load_ivf_searcher(tmp_path / name, quality).search(vectors[:20], top_k=10))
    np.testing.assert_array_equal(found[0].rows, found[1].rows)


def test_recall_counts_ties_and_misses() -> None:
    exact = Neighbours(np.array([[0, 1]]), np.array([[0.9, 0.8]], np.float32))
    tied = Neighbours(np.array([[0, 7]]), np.array([[0.9, 0.8]], np.float32))
    missed = Neighbours(np.array([[0, -1]]), np.array([[0.9, -1e30]], np.float32))
    assert measure_recall(tied, exact) == 1
    assert measure_recall(missed, exact) == 0.5


class VectorsOf(HashRetriever):
    """Gives each text a vector by its hash: random ones have no lists worth the name."""

    def encode_texts(self, texts: list[str]) -> np.ndarray:
        seeds = [zlib.crc32(text.encode()) for text in texts]
        vectors = np.stack([np.random.default_rng(s).standard_normal(self.dim) for s in seeds])
        return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def test_index_above_the_threshold_has_lists(corpus: CorpusPaths, locks: Path) -> None:
    params = replace(PARAMS, ivf_threshold_rows=100, min_recall=0.3)
    search = build(corpus, locks=locks, params=params).manifest.search
    assert search.kind == "ivf"
    assert search.num_rows > 100
    assert search.num_lists >= search.num_probes >= 1
    assert 0.3 <= search.recall <= 1
    with open_index(corpus, locks=locks) as index:
        vectors = HashModel().retriever.encode_texts(["river house", "glass"])
        exact = search_exactly(index.parts[0].iter_vectors(), vectors, top_k=10)
        found = index.search_chunks(vectors, top_k=10).rows
        assert len(set(found[0].tolist()) & set(exact.rows[0].tolist())) >= 1
        assert index.search_chunks(vectors, top_k=1000).rows.shape == (2, index.num_chunks)
        assert verify_index(index, progress=SilentProgress()).num_files == 18


def test_recall_below_the_threshold_is_refused_and_the_next_build_goes_on(
    corpus: CorpusPaths, locks: Path
) -> None:
    params = replace(PARAMS, ivf_threshold_rows=100, min_recall=0.999)
    model = HashModel(retriever=VectorsOf(dim=64))
    with pytest.raises(IndexingError) as caught:
        build(corpus, locks=locks, params=params, model=model)
    assert "recall@10 of 0.999" in caught.value.wanted
    assert "ivf_threshold_rows" in caught.value.run
    assert not corpus.manifest.exists()
    report = build(corpus, locks=locks, params=replace(params, min_recall=0.0), model=model)
    assert (report.is_new, report.manifest.num_encoded) == (True, 0)
    assert [path.name for path in corpus.index.iterdir()] == [report.manifest.folder]
