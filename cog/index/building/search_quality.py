"""What search finds: an index being built goes in, a searcher with a measured recall comes out."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from cog.errors import IndexingError
from cog.index.read.part import IndexPart
from cog.index.records import LISTS, SearchQuality
from cog.index.search.searcher import (
    FlatSearcher,
    ListSearcher,
    measure_recall,
    search_exactly,
    tune_probes,
)
from cog.index.tables.lists import build_lists, index_documents
from cog.index.tables.store import CHUNKS, DOCUMENTS
from cog.model.protocols import Retriever
from cog.params import IndexParams

NUM_FLAT_PROBES = 16  # flat search is exact; this only proves it
NUM_LIST_PROBES = 64
PROBE_SHARE = 3  # a probe is the first third of a chunk, much as a prompt is
PROBES_PER_PASS = 16


def build_search(part: IndexPart, *, retriever: Retriever, params: IndexParams) -> SearchQuality:
    """Build the searcher of an index whose rows are all written, and measure it.

    Up to ``ivf_threshold_rows`` chunks search is exact and nothing is stored; above, lists are.
    """
    is_flat = part.manifest.num_chunks <= params.ivf_threshold_rows
    num_probes = NUM_FLAT_PROBES if is_flat else NUM_LIST_PROBES
    probes = _encode_probes(part, retriever, num_probes=num_probes)
    top_k = min(params.recall_at, part.manifest.num_chunks)
    exact = search_exactly(part.iter_vectors(), probes, top_k=top_k)
    quality = replace(part.manifest.search, recall_at=top_k)
    if is_flat:
        found = FlatSearcher(part.iter_vectors(), quality.dim).search(probes, top_k=top_k)
        quality = replace(quality, recall=measure_recall(found, exact))
    else:
        licences = index_documents(part.folder)
        num_lists = build_lists(
            part.iter_vectors,
            folder=part.folder,
            num_rows=part.manifest.num_chunks,
            dim=retriever.dim,
        )
        quality = replace(quality, kind=LISTS, num_lists=num_lists, licences=licences)
        listed = IndexPart(part.folder, part.manifest)  # as the tables are now
        num_probes, recall = tune_probes(
            lambda number: ListSearcher(listed.find_nearest, replace(quality, num_probes=number)),
            num_lists=num_lists,
            probes=probes,
            exact=exact,
            min_recall=params.min_recall,
        )
        quality = replace(quality, num_probes=num_probes, recall=recall)
    if quality.recall < params.min_recall:
        raise IndexingError(
            f"{quality.kind} search needs a recall@{top_k} of {params.min_recall}",
            found=f"{quality.recall:.3f} with {quality.num_probes} of {quality.num_lists} lists",
            run="raise index.ivf_threshold_rows, or lower index.min_recall, in params.yaml",
        )
    return quality


def _encode_probes(
    part: IndexPart, retriever: Retriever, *, num_probes: int
) -> NDArray[np.float32]:
    num_chunks = part.manifest.num_chunks
    chunk_ids = np.unique(np.linspace(0, num_chunks - 1, num_probes).astype(np.int64))
    chunks = part.take(CHUNKS, chunk_ids, columns=["document_ordinal", "char_start", "char_end"])
    ordinals, starts, ends = (column.to_numpy() for column in chunks.columns)
    documents = part.take(DOCUMENTS, np.unique(ordinals), columns=["ordinal", "text"]).to_pylist()
    text_of = {row["ordinal"]: row["text"] for row in documents}
    sizes = np.maximum(1, (ends - starts) // PROBE_SHARE)
    places = zip(ordinals.tolist(), starts.tolist(), (starts + sizes).tolist(), strict=True)
    texts = [text_of[ordinal][start:end] for ordinal, start, end in places]
    passes = [texts[i : i + PROBES_PER_PASS] for i in range(0, len(texts), PROBES_PER_PASS)]
    return np.concatenate([retriever.encode_texts(part) for part in passes])
