"""A project's datastores: a corpus id goes in, a built or an opened datastore comes out."""

import numpy as np

from cog.baselines.datastore import (
    build_datastore,
    load_keys,
    load_tokens,
)
from cog.baselines.knn_lm import KNN_SETTINGS, KnnGenerator
from cog.baselines.manifest import (
    DatastoreManifest,
    join_manifests,
    load_manifests,
    mismatch,
)
from cog.baselines.neighbours import (
    FLAT,
    SEARCHER_FILE,
    NeighbourSearcher,
    UnionSearcher,
    open_searcher,
)
from cog.corpus.documents import DocumentStore, documents_digest
from cog.errors import IndexingError
from cog.index.versions.folders import hold_writer_lock
from cog.model.load import CogModel, load_model
from cog.params import DatastoreParams, Params
from cog.paths import ProjectPaths
from cog.progress import Progress


def build_corpus_datastore(
    paths: ProjectPaths, corpus_id: str, *, params: Params, progress: Progress, device: str
) -> DatastoreManifest:
    """Build the datastore of a prepared corpus."""
    corpus_paths = paths.corpus(corpus_id)
    store = DocumentStore(corpus_paths.documents)
    settings = params.datastore
    model = load_model(paths.model(params.model), device=device)
    limit = model.prefix_encoder.max_positions
    if settings.context_tokens > limit:
        raise IndexingError(
            f"datastore.context_tokens must be at most {limit}, which {params.model} can read",
            found=str(settings.context_tokens),
            run="change params.yaml",
        )
    with hold_writer_lock(paths.locks, f"{corpus_id}-datastore", say=progress.say):
        return build_datastore(
            corpus_paths.datastore,
            store.iter_documents(),
            model=model,
            corpus_id=corpus_id,
            documents_digest=documents_digest(corpus_paths.documents),
            settings=settings,
            progress=progress,
        )


def describe_search(params: DatastoreParams, manifest: DatastoreManifest) -> dict[str, float]:
    """The settings of section ``datastore`` that change what is found in a built datastore.

    Where search is exact, its reach does not count.
    """
    search = manifest.search
    parts = search.get("parts", [search])
    assert isinstance(parts, list)
    is_exact = all(part["kind"] == FLAT for part in parts)
    names = ["weight"] if not params.weight else [*KNN_SETTINGS]
    names += [] if is_exact or not params.weight else ["num_probes", "rerank_factor"]
    return {f"knn_{name}": getattr(params, name) for name in names}


def open_knn_lm(
    paths: ProjectPaths, corpus_id: str, *, model: CogModel, settings: DatastoreParams
) -> KnnGenerator:
    """Open the datastore of a corpus, or those of a union as one, for writing texts."""
    manifests = load_manifests(paths, corpus_id, model=model.fingerprint)
    parts = [_open_part(paths, manifest, settings) for manifest in manifests]
    tokens = [
        load_tokens(paths.corpus(each.corpus).datastore, num_entries=each.num_entries)
        for each in manifests
    ]
    return KnnGenerator(
        model,
        join_manifests(manifests),
        searcher=UnionSearcher(parts),
        tokens=np.concatenate(tokens),
        settings=settings,
    )


def _open_part(
    paths: ProjectPaths, manifest: DatastoreManifest, settings: DatastoreParams
) -> NeighbourSearcher:
    folder = paths.corpus(manifest.corpus).datastore
    keys = load_keys(folder, num_entries=manifest.num_entries, dim=manifest.dim)
    try:
        return open_searcher(folder, keys, kind=str(manifest.search["kind"]), settings=settings)
    except RuntimeError as error:  # what FAISS raises for a file that is missing or damaged
        raise mismatch(
            manifest.corpus, f"one with a readable {SEARCHER_FILE}", str(error).partition("\n")[0]
        ) from error
