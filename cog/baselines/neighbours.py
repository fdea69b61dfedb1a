"""Search in a datastore: keys go in, a FAISS searcher with exact distances comes out.

Up to a threshold every distance is computed. Above it an IVF-PQ index proposes entries, and those
are ranked again by their exact distances, which also makes their weights exact. Several datastores
are searched one after another, and what they find is merged by distance.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cog.errors import IndexingError
from cog.index.tables.lists import to_gpu
from cog.params import DatastoreParams
from cog.progress import Progress

SEARCHER_FILE = "search.faiss"
MAX_GPU_ROWS = 2048  # that FAISS finds on a GPU for one vector
FLAT = "flat"
IVF_PQ = "ivf-pq"
ROWS_PER_BLOCK = 65536
TRAINING_ROWS_PER_LIST = 48
DIMS_PER_CODE = 8  # a byte of a product quantiser stands for this many dimensions
NUM_PROBE_ROWS = 64


class NeighbourSearcher:
    """Finds the entries whose keys are nearest to a state, by squared distance.

    The FAISS index is trained and filled; if it ``is_exact`` it computes every distance, so nothing
    is proposed. Keys have the *shape* ``(num_entries, dim)``.
    """

    def __init__(
        self,
        index: Any,  # noqa: ANN401
        keys: NDArray[np.float16],
        settings: DatastoreParams,
        *,
        is_exact: bool = False,
    ) -> None:
        self._index = index
        self._keys = keys
        self._settings = settings
        self._is_exact = is_exact

    @property
    def num_entries(self) -> int:
        """Number of entries."""
        return len(self._keys)

    def search(
        self, states: NDArray[np.float32], *, top_k: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Find the nearest entries, or all if there are not as many.

        Gives entries, nearest first (-1 where none was found), and their squared distances
        (infinite there). *Shape:* ``(batch, dim)`` to ``(batch, top_k)`` each
        """
        top_k = min(top_k, len(self._keys))
        states = np.ascontiguousarray(states, dtype=np.float32)
        if self._is_exact:
            distances, rows = self._index.search(states, top_k)
            if (rows < 0).any():  # every entry has a distance, so one of them has no number
                distances[rows < 0] = np.nan
            return rows, distances
        import faiss

        wanted = min(top_k * self._settings.rerank_factor, len(self._keys))
        limits: dict[str, Any] = {"nprobe": self._settings.num_probes}
        parameters = faiss.SearchParametersIVF(**limits)
        _, proposed = self._index.search(states, wanted, params=parameters)
        exact = self._measure(states, proposed)
        order = np.argpartition(exact, min(top_k, wanted - 1), axis=1)[:, :top_k]
        nearest = np.take_along_axis(exact, order, axis=1)
        ranks = np.argsort(nearest, axis=1, kind="stable")
        order = np.take_along_axis(order, ranks, axis=1)
        return (
            np.take_along_axis(proposed, order, axis=1),
            np.take_along_axis(nearest, ranks, axis=1),
        )

    def _measure(self, states: NDArray[np.float32], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        # squared distances to the keys as they are stored
        distances = np.full(rows.shape, np.inf, dtype=np.float32)
        for i, found in enumerate(rows):
            is_there = found >= 0
            keys = self._keys[found[is_there]].astype(np.float32)  # (num_found, dim)
            norms = np.einsum("ij,ij->i", keys, keys) + float(states[i] @ states[i])
            distances[i, is_there] = np.maximum(norms - 2.0 * (keys @ states[i]), 0.0)
        return distances


class UnionSearcher:
    """Finds the entries of several datastores that are nearest to a state.

    Entries count on from part to part.
    """

    def __init__(self, parts: Sequence[NeighbourSearcher]) -> None:
        self._parts = tuple(parts)

    def search(
        self, states: NDArray[np.float32], *, top_k: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Find the nearest entries of all parts as one does; of equally near ones the first."""
        rows, distances, first = [], [], 0
        for part in self._parts:
            found, part_distances = part.search(states, top_k=top_k)
            rows.append(np.where(found < 0, -1, found + first))
            distances.append(part_distances)
            first += part.num_entries
        joined = np.concatenate(distances, axis=1)
        # what is no number comes first, so that it is seen and refused
        ranks = np.argsort(np.where(np.isnan(joined), -np.inf, joined), axis=1, kind="stable")
        order = ranks[:, :top_k]
        return (
            np.take_along_axis(np.concatenate(rows, axis=1), order, axis=1),
            np.take_along_axis(joined, order, axis=1),
        )


def build_searcher(
    folder: Path, keys: NDArray[np.float16], *, settings: DatastoreParams, progress: Progress
) -> dict[str, object]:
    """Build the search of a datastore, measure its recall, and write what must be kept.

    Gives the kind of the search, its sizes, and its recall against exact search; refused is a
    recall below ``min_recall``.
    """
    if len(keys) <= settings.flat_threshold_rows:
        return {"kind": FLAT, "num_lists": 0, "recall": 1.0, "recall_at": settings.recall_at}
    import faiss

    num_entries, dim = keys.shape
    num_lists = 2 ** round(np.log2(4 * np.sqrt(num_entries)))
    num_codes = dim // DIMS_PER_CODE if dim % DIMS_PER_CODE == 0 else dim
    index: Any = faiss.index_factory(dim, f"IVF{num_lists},PQ{num_codes}x8")
    if (quantiser := to_gpu(faiss.IndexFlatL2(dim))) is not None:
        index.clustering_index = quantiser
    progress.say(f"training {num_lists} lists on the keys of {num_entries:,} entries")
    random = np.random.default_rng(0)
    sample = random.choice(
        num_entries, min(num_entries, TRAINING_ROWS_PER_LIST * num_lists), replace=False
    )
    index.train(keys[np.sort(sample)].astype(np.float32))
    for first in range(0, num_entries, ROWS_PER_BLOCK):
        index.add(keys[first : first + ROWS_PER_BLOCK].astype(np.float32))
    faiss.write_index(index, str(folder / SEARCHER_FILE))
    recall = measure_recall(NeighbourSearcher(index, keys, settings), keys, settings.recall_at)
    if recall < settings.min_recall:
        raise IndexingError(
            f"the datastore's search must have a recall of {settings.min_recall}",
            found=f"{recall:.3f} at {settings.recall_at}",
            run="raise datastore.num_probes or datastore.rerank_factor in params.yaml",
        )
    return {
        "kind": IVF_PQ,
        "num_lists": num_lists,
        "recall": round(recall, 4),
        "recall_at": settings.recall_at,
    }


def measure_recall(searcher: NeighbourSearcher, keys: NDArray[np.float16], recall_at: int) -> float:
    """Share of the exact nearest entries that a search finds.

    Probes lie halfway between a key and another of its near ones, so that no probe is an entry.
    """
    random = np.random.default_rng(1)
    chosen = random.choice(len(keys), min(NUM_PROBE_ROWS, len(keys)), replace=False)
    first = keys[np.sort(chosen)].astype(np.float32)
    near, _ = exact_search(first, keys, top_k=8)
    probes = (first + keys[near[:, -1]].astype(np.float32)) / 2.0
    wanted, _ = exact_search(probes, keys, top_k=recall_at)
    found, _ = searcher.search(probes, top_k=recall_at)
    shares = [len(np.intersect1d(a, b)) / len(a) for a, b in zip(wanted, found, strict=True)]
    return float(np.mean(shares))


def exact_search(
    states: NDArray[np.float32], keys: NDArray[np.float16], *, top_k: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Find the nearest entries as a searcher does, by computing every distance, block by block."""
    import faiss

    top_k = min(top_k, len(keys))
    heap = faiss.ResultHeap(nq=len(states), k=top_k)
    for first in range(0, len(keys), ROWS_PER_BLOCK):
        block = keys[first : first + ROWS_PER_BLOCK].astype(np.float32)
        distances, rows = faiss.knn(states, block, min(top_k, len(block)))
        if rows.shape[1] < top_k:
            missing = ((0, 0), (0, top_k - rows.shape[1]))
            distances = np.pad(distances, missing, constant_values=np.inf)
            rows = np.pad(rows, missing, constant_values=-1)
        heap.add_result(distances, rows + first)
    heap.finalize()
    return heap.I, heap.D


def open_searcher(
    folder: Path, keys: NDArray[np.float16], *, kind: str, settings: DatastoreParams
) -> NeighbourSearcher:
    """Open the search of a built datastore."""
    import faiss

    if kind != FLAT:
        index = faiss.read_index(str(folder / SEARCHER_FILE))
        return NeighbourSearcher(index, keys, settings)
    flat: Any = faiss.IndexFlatL2(keys.shape[1])
    for first in range(0, len(keys), ROWS_PER_BLOCK):
        flat.add(keys[first : first + ROWS_PER_BLOCK].astype(np.float32))
    if settings.top_k <= MAX_GPU_ROWS:
        flat = to_gpu(flat) or flat
    return NeighbourSearcher(flat, keys, settings, is_exact=True)
