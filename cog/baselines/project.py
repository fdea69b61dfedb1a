"""A project's datastores: a corpus id goes in, a built or an opened datastore comes out."""

from cog.baselines.datastore import (
    DatastoreSettings,
    build_datastore,
    load_keys,
    load_tokens,
)
from cog.baselines.knn_lm import KnnGenerator, KnnSettings
from cog.baselines.manifest import DatastoreManifest, load_corpus_manifest
from cog.baselines.neighbours import SearchSettings, open_searcher
from cog.corpus.documents import DocumentStore, documents_digest
from cog.errors import IndexingError
from cog.index.activation import get_model_folder
from cog.index.locks import hold_writer_lock
from cog.model.load import CogModel, load_model
from cog.params import DatastoreParams, Params
from cog.paths import ProjectPaths
from cog.progress import Progress


def build_corpus_datastore(
    paths: ProjectPaths, corpus_id: str, *, params: Params, progress: Progress, device: str
) -> DatastoreManifest:
    """Build the datastore of a prepared corpus.

    :param paths: The project.
    :param corpus_id: The corpus.
    :param params: The project's parameters.
    :param progress: Told of every document.
    :param device: ``cpu``, ``cuda`` or ``auto``.
    :returns: Its manifest.
    :raises IndexingError: If the settings cannot be used, or search finds too little.
    """
    corpus_paths = paths.corpus(corpus_id)
    store = DocumentStore(corpus_paths.documents)
    settings = read_settings(params.datastore)
    model = load_model(get_model_folder(paths, params), device=device)
    limit = model.prefix_encoder.max_positions
    if settings.context_tokens > limit:
        raise IndexingError(
            f"datastore.context_tokens must be at most {limit}, which {params.model} can read",
            found=str(settings.context_tokens),
            run="change params.yaml",
        )
    with hold_writer_lock(paths.locks, f"{corpus_id}-datastore", progress=progress):
        return build_datastore(
            corpus_paths.datastore,
            store.iter_documents(),
            model=model,
            corpus_id=corpus_id,
            documents_digest=documents_digest(corpus_paths.documents),
            settings=settings,
            progress=progress,
        )


def read_settings(params: DatastoreParams) -> DatastoreSettings:
    """Read how datastores are built.

    :param params: Section ``datastore``.
    :returns: The settings.
    :raises IndexingError: If windows would not advance, or a number is below 1.
    """
    for name in ("batch_tokens", "num_probes", "rerank_factor", "recall_at"):
        if getattr(params, name) < 1:
            raise IndexingError(
                f"datastore.{name} must be 1 or more",
                found=str(getattr(params, name)),
                run="change params.yaml",
            )
    if not 0 <= params.overlap_tokens < params.context_tokens:
        raise IndexingError(
            "datastore.overlap_tokens must be below datastore.context_tokens",
            found=f"{params.overlap_tokens} and {params.context_tokens}",
            run="change params.yaml",
        )
    search = SearchSettings(
        flat_threshold_rows=params.flat_threshold_rows,
        num_probes=params.num_probes,
        rerank_factor=params.rerank_factor,
        recall_at=params.recall_at,
        min_recall=params.min_recall,
    )
    return DatastoreSettings(
        params.context_tokens, params.overlap_tokens, params.batch_tokens, search
    )


def open_knn_lm(
    paths: ProjectPaths, corpus_id: str, *, model: CogModel, settings: DatastoreParams
) -> KnnGenerator:
    """Open the datastore of a corpus for writing texts.

    :param paths: The project.
    :param corpus_id: The corpus.
    :param model: The model, which must be the one it was built with.
    :param settings: Section ``datastore``.
    :returns: The generator.
    """
    manifest = load_corpus_manifest(paths, corpus_id, model=model.fingerprint)
    folder = paths.corpus(corpus_id).datastore
    keys = load_keys(folder, num_entries=manifest.num_entries, dim=manifest.dim)
    searcher = open_searcher(
        folder, keys, kind=str(manifest.search["kind"]), settings=read_settings(settings).search
    )
    return KnnGenerator(
        model,
        manifest,
        searcher=searcher,
        tokens=load_tokens(folder, num_entries=manifest.num_entries),
        settings=KnnSettings(
            settings.top_k, settings.weight, settings.distance_scale, settings.temperature
        ),
    )
