"""Search over chunk vectors: vectors stream in, a searcher comes out, exact or FAISS's lists.

Up to a hundred thousand chunks an exact search takes milliseconds without FAISS. Lists are mapped
from disk and searched on the processor; a FAISS for GPUs trains them on one.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cog.index.records import SearchQuality

FLAT = "flat"
IVF = "ivf"
SEARCHER = "search."  # how its files begin
SEARCHER_FILE = "search.faiss"
LISTS_FILE = "search.ivfdata"
MAX_PROBED_SHARE = 0.25  # reading more lists than this is no faster than reading all
TRAINING_ROWS_PER_LIST = 64
ROWS_PER_BLOCK = 65536

# float32 (num_rows, dim) blocks in row order, each time it is called
VectorBlocks = Callable[[], Iterator[NDArray[np.float32]]]


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The best rows of a search."""

    rows: NDArray[np.int64]  # (batch, top_k) best first; -1 where there was none
    scores: NDArray[np.float32]  # (batch, top_k) inner products


class Searcher(Protocol):
    """Finds the chunks whose vectors have the largest inner product with a vector."""

    @property
    def num_rows(self) -> int:
        """Number of vectors in it."""

    def search(
        self,
        vectors: NDArray[np.float32],
        *,
        top_k: int,
        allowed: NDArray[np.bool_] | None = None,
    ) -> Neighbours:
        """Find the best rows, exactly ``top_k`` of them if there are as many.

        :param vectors: *Shape:* ``(batch, dim)``
        :param top_k: Number of rows per vector.
        :param allowed: Rows that may be found; None for all. *Shape:* ``(num_rows,)``
        :returns: The rows.
        """


class FlatSearcher:
    """Looks at every vector.

    :param vectors: *Shape:* ``(num_rows, dim)``
    """

    def __init__(self, vectors: NDArray[np.float32]) -> None:
        self._vectors = vectors

    @property
    def num_rows(self) -> int:
        """Number of vectors in it."""
        return len(self._vectors)

    def search(
        self,
        vectors: NDArray[np.float32],
        *,
        top_k: int,
        allowed: NDArray[np.bool_] | None = None,
    ) -> Neighbours:
        """Find the best rows, as :meth:`Searcher.search`; of equal ones the first."""
        scores = vectors @ self._vectors.T  # (batch, num_rows)
        wanted = min(top_k, self.num_rows)
        if allowed is not None:
            scores[:, ~allowed] = -np.inf
            wanted = min(top_k, int(allowed.sum()))
        found = [_find_best(row, wanted) for row in scores]
        rows = np.array(found, dtype=np.int64).reshape(len(vectors), wanted)
        return Neighbours(rows, np.take_along_axis(scores, rows, axis=1))


class ListSearcher:
    """Looks at the lists whose centres are nearest.

    :param index: A FAISS index.
    :param quality: How it was built.
    """

    def __init__(self, index: Any, quality: SearchQuality) -> None:  # noqa: ANN401
        self._index = index
        self._quality = quality

    @property
    def num_rows(self) -> int:
        """Number of vectors in it."""
        return int(self._index.ntotal)

    def search(
        self,
        vectors: NDArray[np.float32],
        *,
        top_k: int,
        allowed: NDArray[np.bool_] | None = None,
    ) -> Neighbours:
        """Find the best rows, as :meth:`Searcher.search`; -1 where there was none."""
        import faiss

        wanted = min(top_k, self.num_rows if allowed is None else int(allowed.sum()))
        if wanted == 0:
            shape = (len(vectors), 0)
            return Neighbours(np.zeros(shape, np.int64), np.zeros(shape, np.float32))
        settings: dict[str, Any] = {}
        if allowed is not None:
            bits = np.packbits(allowed, bitorder="little")
            settings["sel"] = faiss.IDSelectorBitmap(len(allowed), faiss.swig_ptr(bits))
        vectors = np.ascontiguousarray(vectors, dtype=np.float32)
        num_probes = self._quality.num_probes
        while True:
            settings["nprobe"] = num_probes
            limits = faiss.SearchParametersIVF(**settings)
            scores, rows = self._index.search(vectors, wanted, params=limits)
            if num_probes >= self._quality.num_lists or (rows >= 0).all():
                return Neighbours(rows, scores)
            num_probes = min(2 * num_probes, self._quality.num_lists)  # lists ran short


def make_flat_searcher(blocks: Iterable[NDArray[np.float32]], quality: SearchQuality) -> Searcher:
    """Build an exact searcher."""
    return FlatSearcher(np.concatenate([np.zeros((0, quality.dim), np.float32), *blocks]))


def to_gpu(index: Any) -> Any | None:  # noqa: ANN401
    """A copy of an exact index on the first GPU; None where FAISS, or the machine, has none."""
    import faiss

    if not hasattr(faiss, "StandardGpuResources") or faiss.get_num_gpus() == 0:
        return None
    return faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), 0, index)


def build_ivf(blocks: VectorBlocks, *, folder: Path, num_rows: int, dim: int) -> int:
    """Build inverted lists on disk; memory is bounded by a block of vectors. Gives their number."""
    import faiss
    from faiss.contrib.ondisk import merge_ondisk

    num_lists = max(1, min(int(4 * num_rows**0.5), num_rows // TRAINING_ROWS_PER_LIST))
    trained = faiss.IndexIVFFlat(faiss.IndexFlatIP(dim), dim, num_lists, faiss.METRIC_INNER_PRODUCT)
    trained.cp.seed = 0
    if (quantiser := to_gpu(faiss.IndexFlatIP(dim))) is not None:
        trained.clustering_index = quantiser
    trained.train(_sample(blocks, num_rows=num_rows, size=num_lists * TRAINING_ROWS_PER_LIST))
    parts: list[Path] = []
    first = 0
    for block in blocks():
        part = faiss.clone_index(trained)
        part.add_with_ids(block, np.arange(first, first + len(block), dtype=np.int64))
        parts.append(folder / f"part-{len(parts)}.faiss")
        faiss.write_index(part, str(parts[-1]))
        first += len(block)
    merge_ondisk(trained, [str(part) for part in parts], str(folder / LISTS_FILE))
    faiss.write_index(trained, str(folder / SEARCHER_FILE))
    for part_file in parts:
        part_file.unlink()
    return num_lists


def load_ivf_searcher(folder: Path, quality: SearchQuality) -> Searcher:
    """Open inverted lists; they are mapped into memory, not read."""
    import faiss

    flags = faiss.IO_FLAG_ONDISK_SAME_DIR | faiss.IO_FLAG_READ_ONLY
    return ListSearcher(faiss.read_index(str(folder / SEARCHER_FILE), flags), quality)


def search_exactly(
    blocks: Iterable[NDArray[np.float32]], vectors: NDArray[np.float32], *, top_k: int
) -> Neighbours:
    """Search every vector, in memory bounded by one block.

    :param blocks: Vectors in row order.
    :param vectors: What to look for. *Shape:* ``(batch, dim)``
    :param top_k: Number of rows per vector.
    :returns: The best rows.
    """
    rows = np.zeros((len(vectors), 0), dtype=np.int64)
    scores = np.zeros((len(vectors), 0), dtype=np.float32)
    first = 0
    for block in blocks:
        ids = np.broadcast_to(np.arange(first, first + len(block)), (len(vectors), len(block)))
        scores = np.concatenate([scores, vectors @ block.T], axis=1)  # (batch, kept + block)
        rows = np.concatenate([rows, ids], axis=1)
        best = np.argsort(-scores, axis=1, kind="stable")[:, :top_k]
        scores = np.take_along_axis(scores, best, axis=1)
        rows = np.take_along_axis(rows, best, axis=1)
        first += len(block)
    return Neighbours(rows, scores)


def measure_recall(found: Neighbours, exact: Neighbours) -> float:
    """Share of the best rows that a search found; rows that tie with the last of them count."""
    worst = exact.scores.min(axis=1, keepdims=True)
    hits = (found.rows >= 0) & (found.scores >= worst - 1e-5)
    return float(hits.sum() / exact.rows.size)


def tune_probes(
    searcher_of: Callable[[int], Searcher],
    *,
    num_lists: int,
    probes: NDArray[np.float32],
    exact: Neighbours,
    min_recall: float,
) -> tuple[int, float]:
    """Find the smallest power of two of lists to read that reaches a recall.

    :param searcher_of: Makes the searcher that reads so many lists.
    :param num_lists: Number of lists.
    :param probes: Vectors to search for. *Shape:* ``(batch, dim)``
    :param exact: What exact search finds for them.
    :param min_recall: The recall to reach.
    :returns: Number of lists read, and the recall; the best there is if none reaches it.
    """
    top_k = exact.rows.shape[1]
    num_probes, limit = 1, max(1, int(MAX_PROBED_SHARE * num_lists))
    while True:
        recall = measure_recall(searcher_of(num_probes).search(probes, top_k=top_k), exact)
        if recall >= min_recall or num_probes >= limit:
            return num_probes, recall
        num_probes = min(2 * num_probes, limit)


def _sample(blocks: VectorBlocks, *, num_rows: int, size: int) -> NDArray[np.float32]:
    # rows evenly spread over the corpus
    wanted = np.unique(np.linspace(0, num_rows - 1, min(size, num_rows)).astype(np.int64))
    parts, first = [], 0
    for block in blocks():
        inside = wanted[(wanted >= first) & (wanted < first + len(block))] - first
        parts.append(block[inside])
        first += len(block)
    return np.concatenate(parts)


def _find_best(scores: NDArray[np.float32], top_k: int) -> NDArray[np.int64]:
    # of equal scores the first row counts as better; sorting all of them would take ten times as
    # long as the product
    rows: NDArray[np.int64] = np.arange(len(scores))
    if 0 < top_k < len(scores):
        rows = np.flatnonzero(scores >= np.partition(scores, -top_k)[-top_k])
    return rows[np.argsort(-scores[rows], kind="stable")[:top_k]]
