"""What search finds: an index being built goes in, a searcher with a measured recall comes out."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from cog.errors import IndexingError
from cog.index.reader import PhraseIndex
from cog.index.records import SearchQuality
from cog.index.searcher import (
    FLAT,
    IVF,
    build_ivf,
    load_ivf_searcher,
    make_flat_searcher,
    measure_recall,
    search_exactly,
    tune_probes,
)
from cog.model.protocols import Retriever
from cog.params import IndexParams

NUM_FLAT_PROBES = 16  # flat search is exact; this only proves it
NUM_IVF_PROBES = 64
PROBE_SHARE = 3  # a probe is the first third of a chunk, much as a prompt is
PROBES_PER_PASS = 16


def build_search(index: PhraseIndex, *, retriever: Retriever, params: IndexParams) -> SearchQuality:
    """Build the searcher of an index that is being built, and measure it.

    Up to ``ivf_threshold_rows`` chunks search is exact and nothing is stored; above, inverted lists
    are.

    :param index: The index, all rows written.
    :param retriever: Encodes the probes.
    :param params: Settings.
    :returns: What the manifest says of the searcher.
    :raises IndexingError: If the recall is below ``min_recall``.
    """
    is_flat = index.num_chunks <= params.ivf_threshold_rows
    num_probes = NUM_FLAT_PROBES if is_flat else NUM_IVF_PROBES
    probes = _encode_probes(index, retriever, num_probes=num_probes)
    top_k = min(params.recall_at, index.num_chunks)
    exact = search_exactly(index.iter_vectors(), probes, top_k=top_k)
    quality = SearchQuality(
        kind=FLAT,
        dim=retriever.dim,
        num_rows=index.num_chunks,
        num_lists=0,
        num_probes=0,
        recall_at=top_k,
        recall=0.0,
    )
    if is_flat:
        found = make_flat_searcher(index.iter_vectors(), quality).search(probes, top_k=top_k)
        quality = replace(quality, recall=measure_recall(found, exact))
    else:
        num_lists = build_ivf(
            index.iter_vectors,
            folder=index.folder,
            num_rows=index.num_chunks,
            dim=retriever.dim,
        )
        quality = replace(quality, kind=IVF, num_lists=num_lists)
        num_probes, recall = tune_probes(
            lambda number: load_ivf_searcher(index.folder, replace(quality, num_probes=number)),
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
            about=index.manifest.corpus,
        )
    return quality


def _encode_probes(
    index: PhraseIndex, retriever: Retriever, *, num_probes: int
) -> NDArray[np.float32]:
    chunk_ids = np.unique(np.linspace(0, index.num_chunks - 1, num_probes).astype(np.int64))
    rows = index.get_chunk_ranges(chunk_ids)
    documents = index.get_documents(row.document_ordinal for row in rows)
    texts = []
    for row in rows:
        end = row.char_start + max(1, (row.char_end - row.char_start) // PROBE_SHARE)
        texts.append(documents[row.document_ordinal].text[row.char_start : end])
    passes = [texts[i : i + PROBES_PER_PASS] for i in range(0, len(texts), PROBES_PER_PASS)]
    return np.concatenate([retriever.encode_texts(part) for part in passes])
