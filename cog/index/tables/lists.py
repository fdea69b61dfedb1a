"""Lists on disk: the tables of a version folder go in; Lance's indexes over them are put beside.

Vectors are kept in lists of chunks that lie near each other, by centres that FAISS finds: the same
each time, and on a GPU where it has one. Licences and documents are looked up by indexes of their
own. None of it is part of what an index is: its digest is that of the rows.
"""

import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cog.index.records import LISTS
from cog.index.tables.store import CHUNKS, DOCUMENT, DOCUMENTS, LICENCE

CHUNK_INDICES = f"{CHUNKS}.lance/_indices/"  # how their files begin
TRAINING_ROWS_PER_LIST = 48
TRAINING_PASSES = 10
MIN_LIST_ROWS = 64

# float32 (num_rows, dim) blocks in row order, each time it is called
VectorBlocks = Callable[[], Iterator[NDArray[np.float32]]]


def build_lists(blocks: VectorBlocks, *, folder: Path, num_rows: int, dim: int) -> int:
    """Put the chunks of a version folder into lists; gives the number of lists.

    Memory is bounded by the vectors that centres are found by: 48 a list, of two lists for the
    square root of the chunks.
    """
    import lance

    # with thousands of lists Lance would guess the nearest, and by inner product it guesses wrong
    # for half of the chunks
    os.environ["LANCE_USE_HNSW_SPEEDUP_INDEXING"] = "disabled"
    num_lists = count_lists(num_rows)
    sample = _sample(blocks, num_rows=num_rows, size=num_lists * TRAINING_ROWS_PER_LIST)
    chunks = lance.dataset(folder / f"{CHUNKS}.lance")
    chunks.create_index(
        "vector",
        "IVF_FLAT",
        name=LISTS,
        metric="dot",
        num_partitions=num_lists,
        ivf_centroids=_find_centres(sample, num_lists=num_lists, dim=dim),
    )
    _clean(chunks)
    return num_lists


def count_lists(num_rows: int) -> int:
    """Number of lists of so many chunks."""
    return max(1, min(int(2 * num_rows**0.5), num_rows // MIN_LIST_ROWS))


def index_documents(folder: Path) -> dict[str, int]:
    """Let documents and chunks be found by licence and id; gives the licences' documents."""
    import lance

    documents, chunks = (lance.dataset(folder / f"{name}.lance") for name in (DOCUMENTS, CHUNKS))
    numbers: dict[str, int] = {}
    codes = [
        numbers.setdefault(each, len(numbers))
        for batch in documents.to_batches(columns=[LICENCE], scan_in_order=True)
        for each in batch.column(0).to_pylist()
    ]
    by_document = np.array(codes, dtype=np.int32)
    names = pa.array(numbers, pa.string())
    schema = pa.schema([pa.field(LICENCE, pa.string(), nullable=False)])
    licences = (
        pa.record_batch([names.take(pa.array(by_document[batch.column(0).to_numpy()]))], schema)
        for batch in chunks.to_batches(columns=[DOCUMENT], scan_in_order=True)
    )
    chunks.add_columns(pa.RecordBatchReader.from_batches(schema, licences))
    chunks.create_scalar_index(LICENCE, "BITMAP")
    chunks.create_scalar_index(DOCUMENT, "BTREE")
    documents.create_scalar_index("document_id", "BTREE")
    for table in (documents, chunks):
        _clean(table)
    counts = np.bincount(by_document, minlength=len(numbers)).tolist()
    return dict(zip(numbers, counts, strict=True))


def to_gpu(index: Any) -> Any | None:  # noqa: ANN401
    """A copy of an exact index on the first GPU; None where FAISS, or the machine, has none."""
    import faiss

    if not hasattr(faiss, "StandardGpuResources") or faiss.get_num_gpus() == 0:
        return None
    return faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), 0, index)


def _find_centres(sample: NDArray[np.float32], *, num_lists: int, dim: int) -> NDArray[np.float32]:
    import faiss

    settings = faiss.ClusteringParameters()
    settings.niter, settings.seed, settings.spherical = TRAINING_PASSES, 0, True
    settings.min_points_per_centroid = 1
    clustering = faiss.Clustering(dim, num_lists, settings)
    exact = faiss.IndexFlatIP(dim)
    clustering.train(sample, to_gpu(exact) or exact)
    centres: NDArray[np.float32] = faiss.vector_to_array(clustering.centroids)
    return centres.reshape(num_lists, dim)


def _sample(blocks: VectorBlocks, *, num_rows: int, size: int) -> NDArray[np.float32]:
    # rows evenly spread over the corpus
    wanted = np.unique(np.linspace(0, num_rows - 1, min(size, num_rows)).astype(np.int64))
    parts, first = [], 0
    for block in blocks():
        inside = wanted[(wanted >= first) & (wanted < first + len(block))] - first
        parts.append(block[inside])
        first += len(block)
    return np.concatenate(parts)


def _clean(table: Any) -> None:  # noqa: ANN401
    # one version, as compaction leaves it
    table.cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)
