"""Search in datastores against plain distances: exact, proposed, and several as one."""

from dataclasses import replace
from pathlib import Path

import faiss
import numpy as np
import pytest
from numpy.typing import NDArray

from cog.baselines.neighbours import (
    NeighbourSearcher,
    UnionSearcher,
    build_searcher,
    exact_search,
    open_searcher,
)
from cog.errors import IndexingError
from cog.params import DatastoreParams
from cog.progress import SilentProgress

SEARCH = DatastoreParams(
    flat_threshold_rows=100, num_probes=8, rerank_factor=2, recall_at=10, min_recall=0.5
)


@pytest.fixture(scope="module")
def narrow_search(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[NeighbourSearcher, NDArray[np.float16]]:
    """A search that reads one list, and its keys."""
    folder: Path = tmp_path_factory.mktemp("narrow")
    keys = np.random.default_rng(0).normal(size=(300, 16)).astype(np.float16)
    narrow = replace(SEARCH, num_probes=1, min_recall=0.0)
    build_searcher(folder, keys, settings=narrow, progress=SilentProgress())
    return open_searcher(folder, keys, kind="ivf-pq", settings=narrow), keys


def test_approximate_search_measures_its_recall_and_gives_exact_distances(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    centres = random.normal(size=(40, 16)) * 4
    keys = (centres[random.integers(0, 40, 4000)] + random.normal(size=(4000, 16))).astype(
        np.float16
    )
    found = build_searcher(tmp_path, keys, settings=SEARCH, progress=SilentProgress())
    assert found["kind"] == "ivf-pq"
    assert 0.5 <= float(str(found["recall"])) <= 1.0
    searcher = open_searcher(tmp_path, keys, kind="ivf-pq", settings=SEARCH)
    queries = keys[:5].astype(np.float32) + 0.01
    rows, distances = searcher.search(queries, top_k=7)
    for i in range(5):
        plain = ((keys[rows[i]].astype(np.float32) - queries[i]) ** 2).sum(axis=1)
        np.testing.assert_allclose(distances[i], plain, rtol=1e-3, atol=1e-3)
        assert (np.diff(distances[i]) >= 0).all()


def test_exact_search_in_blocks_equals_all_distances() -> None:
    random = np.random.default_rng(2)
    keys = random.normal(size=(70000, 4)).astype(np.float16)
    queries = random.normal(size=(3, 4)).astype(np.float32)
    rows, distances = exact_search(queries, keys, top_k=9)
    plain = ((keys.astype(np.float32)[None] - queries[:, None]) ** 2).sum(axis=2)
    np.testing.assert_allclose(distances, np.sort(plain, axis=1)[:, :9], rtol=1e-3, atol=1e-5)
    assert rows.shape == (3, 9)


def test_a_search_is_exact_by_what_it_is_told_not_by_the_class_of_its_index() -> None:
    keys = np.random.default_rng(3).normal(size=(300, 16)).astype(np.float16)
    wrapped = faiss.IndexIDMap(faiss.IndexFlatL2(16))  # no IndexFlat either, as on a GPU
    wrapped.add_with_ids(keys.astype(np.float32), np.arange(300))
    searcher = NeighbourSearcher(wrapped, keys, SEARCH, is_exact=True)
    queries = keys[:3].astype(np.float32) + 0.1
    rows, distances = searcher.search(queries, top_k=9)
    wanted, wanted_distances = exact_search(queries, keys, top_k=9)
    assert rows.tolist() == wanted.tolist()
    np.testing.assert_allclose(distances, wanted_distances, rtol=1e-4)


def test_several_searched_as_one_find_what_one_of_all_keys_finds(tmp_path: Path) -> None:
    random = np.random.default_rng(4)
    keys = random.normal(size=(180, 16)).astype(np.float16)
    keys[100:110] = keys[:10]  # equal distances
    queries = keys[[3, 50, 170]].astype(np.float32) + 0.05
    parts = [
        open_searcher(tmp_path, part, kind="flat", settings=SEARCH)
        for part in (keys[:100], keys[100:105], keys[105:])  # one holds less than is wanted
    ]
    rows, distances = UnionSearcher(parts).search(queries, top_k=12)
    wanted, wanted_distances = exact_search(queries, keys, top_k=12)
    assert rows.tolist() == wanted.tolist()
    np.testing.assert_allclose(distances, wanted_distances, rtol=1e-4)
    whole, _ = UnionSearcher(parts).search(queries, top_k=500)
    assert [sorted(row) for row in whole.tolist()] == [list(range(180))] * 3


def test_what_one_of_several_does_not_find_or_cannot_tell_stays_so(
    narrow_search: tuple[NeighbourSearcher, NDArray[np.float16]], tmp_path: Path
) -> None:
    lists, keys = narrow_search
    near = open_searcher(tmp_path, keys[:20], kind="flat", settings=SEARCH)
    rows, distances = UnionSearcher([near, lists]).search(keys[:2].astype(np.float32), top_k=250)
    assert ((rows == -1) == np.isinf(distances)).all()
    assert (rows == -1).any()
    assert rows.max() >= 20
    spoilt = keys[:20].copy()
    spoilt[5:] = np.nan
    broken = open_searcher(tmp_path, spoilt, kind="flat", settings=SEARCH)
    _, distances = UnionSearcher([near, broken]).search(keys[:2].astype(np.float32), top_k=10)
    assert np.isnan(distances).any(axis=1).all()


def test_low_recall_is_refused(tmp_path: Path) -> None:
    keys = np.random.default_rng(0).normal(size=(3000, 16)).astype(np.float16)
    strict = replace(SEARCH, num_probes=1, rerank_factor=1, min_recall=0.999)
    with pytest.raises(IndexingError, match="recall"):
        build_searcher(tmp_path, keys, settings=strict, progress=SilentProgress())


def test_fewer_neighbours_than_asked_have_infinite_distances(
    narrow_search: tuple[NeighbourSearcher, NDArray[np.float16]],
) -> None:
    searcher, keys = narrow_search
    rows, distances = searcher.search(keys[:2].astype(np.float32), top_k=250)
    assert ((rows == -1) == np.isinf(distances)).all()
    assert (rows == -1).any()
