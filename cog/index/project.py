"""The index of a project's corpus: a corpus id goes in; its index is built, opened or verified."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from cog.corpus.documents import DocumentStore, documents_digest
from cog.errors import IndexingError
from cog.index.building.assembly import MeasureStorage
from cog.index.building.builder import BuildReport, build_index
from cog.index.read.reader import open_index
from cog.index.read.verify import VerifyReport, verify_index
from cog.index.versions.activation import get_kept
from cog.index.versions.manifest import load_manifest
from cog.index.versions.recorded import record_version
from cog.model.fingerprint import fingerprint_model
from cog.model.vector_code import VECTOR_CODES, VectorCodes, load_codes
from cog.params import Params
from cog.paths import ProjectPaths
from cog.progress import Progress

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
    force: bool = False,
    measure_storage: MeasureStorage | None = None,
    fit_codes: Callable[[], VectorCodes] | None = None,
) -> BuildReport:
    """Build the index of a corpus with the project's model, unless it is there already."""
    model_folder = paths.model(params.model)

    def load_model() -> "IndexModel":
        from cog.model.load import load_index_model

        return load_index_model(model_folder, device=device)

    def get_codes() -> VectorCodes:
        codes = _find_codes(paths, model_folder)
        if codes is not None:
            return codes
        if fit_codes is None:
            raise IndexingError(
                "compact vectors need the codes of the model",
                found=f"no {VECTOR_CODES} in {model_folder}, and no index that has them",
                run=f"cog index build {corpus_id}",
                about=corpus_id,
            )
        progress.say("the bits of vectors are fitted to the model, on this corpus")
        return fit_codes()

    record_version(paths, corpus_id)
    return build_index(
        paths.corpus(corpus_id),
        locks=paths.locks,
        model_fingerprint=fingerprint_model(model_folder),
        load_model=load_model,
        params=params.index,
        progress=progress,
        force=force,
        measure_storage=measure_storage,
        get_codes=get_codes,
        get_kept=lambda: get_kept(paths, corpus_id),
    )


def _find_codes(paths: ProjectPaths, model_folder: Path) -> VectorCodes | None:
    # those of the model, else those of another index of it: only indexes of one code can be joined
    if (model_folder / VECTOR_CODES).is_file():
        return load_codes(model_folder)
    fingerprint = fingerprint_model(model_folder)
    for place in map(paths.corpus, sorted(each.name for each in paths.corpora.iterdir())):
        try:
            manifest = load_manifest(place)
        except IndexingError:
            continue
        if manifest.vectors.codes and manifest.model == fingerprint:
            folder = place.index / manifest.folder
            if (folder / VECTOR_CODES).is_file():
                return load_codes(folder)
    return None


def verify_corpus_index(
    paths: ProjectPaths, corpus_id: str, *, params: Params, progress: Progress
) -> VerifyReport:
    """Check everything a corpus's index states, and that it is of the documents and the model."""
    with open_index(
        paths.corpus(corpus_id),
        locks=paths.locks,
        model_fingerprint=fingerprint_model(paths.model(params.model)),
        documents_digest_of=lambda place: documents_digest(place.documents),
    ) as index:
        return verify_index(index, progress=progress)
