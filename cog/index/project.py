"""The index of a project's corpus: a corpus id goes in; its index is built, opened or verified."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from cog.corpus.documents import DocumentStore, documents_digest
from cog.errors import IndexingError
from cog.extras import require
from cog.index.building.assembly import MeasureStorage
from cog.index.building.builder import BuildReport, build_index
from cog.index.building.encoding import Encoders, OpenPool, Pool, open_local_pool
from cog.index.building.ray_pool import WorkerModel, open_ray_pool
from cog.index.plan import IndexPlan, plan_index
from cog.index.read.reader import open_index
from cog.index.read.verify import VerifyReport, verify_index
from cog.index.records import Manifest
from cog.index.versions.activation import get_kept
from cog.index.versions.manifest import load_manifest
from cog.index.versions.recorded import record_version
from cog.model.fingerprint import fingerprint_model
from cog.model.vector_code import VECTOR_CODES, VectorCodes, load_codes
from cog.params import LOCAL, Params
from cog.paths import CorpusPaths, ProjectPaths
from cog.progress import Progress
from cog.registry import load_resolved_card

if TYPE_CHECKING:
    from cog.model.load import IndexModel


def count_corpus_words(paths: ProjectPaths, corpus_id: str) -> int:
    """Number of white-space separated words that a build of a corpus goes through."""
    return DocumentStore(paths.corpus(corpus_id).documents).load_report().num_words


def build_corpus_index(
    paths: ProjectPaths,
    corpus_id: str,
    *,
    params: Params,
    progress: Progress,
    device: str = "cpu",
    address: str = "",
    force: bool = False,
    measure_storage: MeasureStorage | None = None,
    fit_codes: Callable[[], VectorCodes] | None = None,
) -> BuildReport:
    """Build the index of a corpus with the project's model, unless it is there already.

    ``address`` is that of a Ray cluster, if ``index.engine`` says that one encodes.
    """
    model_folder = paths.model(params.model)

    def load_model() -> "IndexModel":
        from cog.model.load import load_index_model

        return load_index_model(model_folder, device=device)

    def get_codes() -> VectorCodes:
        codes = _find_codes(paths, model_folder)
        if codes is None:
            assert fit_codes is not None  # given wherever vectors may be compact
            progress.say("the bits of vectors are fitted to the model, on this corpus")
            codes = fit_codes()
        return codes

    open_pool: OpenPool = open_local_pool
    if params.index.engine != LOCAL:
        require("ray")  # now, not after the model is loaded
        open_pool = _make_ray_opener(model_folder, address=address, progress=progress)
    record_version(paths, corpus_id)
    return build_index(
        paths.corpus(corpus_id),
        model_fingerprint=fingerprint_model(model_folder),
        load_model=load_model,
        params=params.index,
        progress=progress,
        force=force,
        measure_storage=measure_storage,
        get_codes=get_codes,
        get_kept=lambda: get_kept(paths, corpus_id),
        open_pool=open_pool,
    )


def _make_ray_opener(model_folder: Path, *, address: str, progress: Progress) -> OpenPool:
    def open_pool(model: "IndexModel", encoders: Encoders) -> AbstractContextManager[Pool]:
        wanted = WorkerModel(
            model_folder,
            fingerprint=model.fingerprint,
            numerics=model.numerics,
            device=model.phrase_encoder.device.type,
            vector_dtype=encoders.vector_dtype,
            codes=encoders.codes,
        )
        return open_ray_pool(wanted, address=address, progress=progress)

    return open_pool


def _find_codes(paths: ProjectPaths, model_folder: Path) -> VectorCodes | None:
    # those of the model, else those of another index of it: only indexes of one code can be joined
    if (model_folder / VECTOR_CODES).is_file():
        return load_codes(model_folder)
    fingerprint = fingerprint_model(model_folder)
    for place, manifest in _iter_indexes(paths):
        folder = place.index / manifest.folder
        if manifest.vectors.codes and manifest.model == fingerprint and folder.is_dir():
            return load_codes(folder)
    return None


def _iter_indexes(paths: ProjectPaths) -> Iterator[tuple[CorpusPaths, Manifest]]:
    # those that are in place and can be read
    for folder in sorted(paths.corpora.iterdir()) if paths.corpora.is_dir() else []:
        place = paths.corpus(folder.name)
        with suppress(IndexingError):
            yield place, load_manifest(place)


def plan_corpus_index(
    paths: ProjectPaths,
    corpus_id: str,
    *,
    params: Params,
    num_words: int | None = None,
    num_workers: int = 1,
    rate: float | None = None,
    price_per_hour: float = 0.0,
) -> IndexPlan:
    """Say what the index of a corpus will cost, by the largest index that the project has.

    ``num_words`` is that of the whole source, of which a subset takes its share; None where
    the corpus is prepared, and is counted.
    """
    card = load_resolved_card(paths, corpus_id)
    if num_words is not None:
        words = round(num_words * (card.subset.share if card.subset else 1.0))
    elif paths.corpus(corpus_id).documents.is_file():
        words = count_corpus_words(paths, corpus_id)
    else:
        raise IndexingError(
            f"a plan for {corpus_id} needs its number of words",
            found="neither documents nor --words",
            run=f"cog index plan {corpus_id} --words 3000000000 (of the whole source)",
        )
    indexes = [each for each in _iter_indexes(paths) if each[0].documents.is_file()]
    if not indexes:
        raise IndexingError(
            "a plan needs an index to measure",
            found="none in this project",
            run="cog index build wiki-mini",
        )
    place, reference = max(indexes, key=lambda each: each[1].num_words)
    return plan_index(
        corpus_id,
        num_words=words,
        reference=reference,
        reference_words=count_corpus_words(paths, place.root.name),
        params=params.index,
        top_k_chunks=params.generate.decoding.top_k_documents,
        num_workers=num_workers,
        rate=rate,
        price_per_hour=price_per_hour,
    )


def verify_corpus_index(
    paths: ProjectPaths, corpus_id: str, *, params: Params, progress: Progress
) -> VerifyReport:
    """Check everything a corpus's index states, and that it is of the documents and the model."""
    with open_index(
        paths.corpus(corpus_id),
        model_fingerprint=fingerprint_model(paths.model(params.model)),
        documents_digest_of=lambda place: documents_digest(place.documents),
    ) as index:
        return verify_index(index, progress=progress)
