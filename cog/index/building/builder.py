"""Building: documents and a model go in, a finished index comes out beside the old one."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cog.atomic import open_staging
from cog.corpus.documents import DocumentStore
from cog.errors import IndexingError, IndexMismatchError, IndexNotBuiltError
from cog.extras import require
from cog.index.building.assembly import Assembly, BuildInput, MeasureStorage
from cog.index.building.encoding import OpenPool, open_local_pool
from cog.index.building.reuse import StoredChunks, make_vectors_key
from cog.index.records import FORMAT_VERSION, VECTORS_VERSION, Manifest
from cog.index.tables.quantise import COMPACT, make_layout
from cog.index.versions.folders import (
    TABLES,
    Keep,
    find_parts,
    hold_build_lock,
    hold_versions_lock,
    iter_kept,
    place_version,
    prune_versions,
    remove_leftovers,
    serve_version,
)
from cog.index.versions.manifest import check_index, find_manifest, load_manifest
from cog.model.vector_code import VectorCodes
from cog.params import IndexParams
from cog.paths import CorpusPaths
from cog.progress import Progress

if TYPE_CHECKING:
    from cog.model.load import IndexModel

MIN_CHUNK_WORDS = 100  # of a chunk, more than which next to none has: above it lists are built


@dataclass(frozen=True, slots=True)
class BuildReport:
    """What a build did."""

    manifest: Manifest  # the index that is in place now
    is_new: bool  # whether it was built now; otherwise it was there already


def build_index(
    corpus_paths: CorpusPaths,
    *,
    model_fingerprint: str,
    load_model: Callable[[], "IndexModel"],
    params: IndexParams,
    get_kept: Callable[[], Keep | None],
    progress: Progress,
    force: bool = False,
    measure_storage: MeasureStorage | None = None,
    get_codes: Callable[[], VectorCodes] | None = None,
    open_pool: OpenPool = open_local_pool,
) -> BuildReport:
    """Build the index of a corpus, unless it is there already.

    It is written beside the old one; replacing the manifest is what puts it in place. A build that
    is killed at any moment leaves the old one serving. Chunks that the old one holds, or a build
    that did not finish, are not encoded again, unless ``force`` asks for it. The model is loaded
    only if something is built, and so are the codes of compact vectors; ``get_kept`` gives None
    where it cannot be told which versions stay, and then all do. ``open_pool`` gives what encodes.
    """
    with hold_build_lock(corpus_paths, say=progress.say):
        store = DocumentStore(corpus_paths.documents)
        build_input = BuildInput(corpus_paths, store.load_report(), model_fingerprint, params)
        current = None if force else find_current(build_input)
        if current is not None:
            remove_leftovers(corpus_paths, keep=[current.folder])
            with hold_versions_lock(corpus_paths, say=progress.say):
                prune_versions(corpus_paths, get_kept())
            progress.say(f"the index of {current.corpus} is up to date: {current.digest[:16]}")
            return BuildReport(current, is_new=False)
        if build_input.report.num_words > MIN_CHUNK_WORDS * params.ivf_threshold_rows:
            require("faiss")  # now, not after hours of encoding
        if params.vector_dtype == COMPACT and get_codes is not None:
            build_input = replace(build_input, codes=get_codes())
        manifest = _build(
            build_input,
            store,
            model=load_model(),
            progress=progress,
            force=force,
            measure_storage=measure_storage,
            open_pool=open_pool,
        )
        serve_version(corpus_paths, manifest, get_kept, say=progress.say)
        return BuildReport(manifest, is_new=True)


def _build(
    build_input: BuildInput,
    documents: DocumentStore,
    *,
    model: "IndexModel",
    progress: Progress,
    force: bool,
    measure_storage: MeasureStorage | None,
    open_pool: OpenPool,
) -> Manifest:
    corpus_paths, dtype = build_input.corpus_paths, build_input.params.vector_dtype
    codes = build_input.codes
    key = make_vectors_key(
        model_fingerprint=model.fingerprint,
        vector_dtype=dtype + (codes.digest() if codes else ""),
        numerics=model.numerics,
    )
    before = find_manifest(corpus_paths, oldest=VECTORS_VERSION)
    _say_format(corpus_paths, before, progress=progress, force=force)
    parts = None if force else find_parts(corpus_paths, key)
    if before is not None:
        # what an unreadable manifest served is unknown: nothing goes before a new one is in place
        kept = [before.folder, *([parts.parent.name] if parts else [])]
        remove_leftovers(corpus_paths, keep=kept)
    folders = [] if force else _find_stored(corpus_paths, before, key, parts)
    with open_staging(corpus_paths.index / key, is_kept=True) as staging:
        assembly = Assembly(staging / TABLES, build_input, model, progress)
        try:
            with StoredChunks(
                folders,
                corpus_paths=corpus_paths,
                layout=make_layout(dtype, model.phrase_encoder.dim, codes=codes),
                progress=progress,
            ) as stored:
                manifest = assembly.run(
                    documents.iter_documents(),
                    stored,
                    open_pool=open_pool,
                    measure_storage=measure_storage,
                    before=None if force else before,
                )
        except BaseException:
            if not assembly.is_begun:  # else the next build goes on from it, whatever went wrong
                shutil.rmtree(staging, ignore_errors=True)
            raise
        folder = place_version(staging / TABLES, manifest.digest, into=corpus_paths.index)
    return replace(manifest, folder=folder.name)


def find_current(build_input: BuildInput) -> Manifest | None:
    """Find the whole index that a build would only repeat."""
    try:
        manifest = check_index(
            build_input.corpus_paths,
            model_fingerprint=build_input.model_fingerprint,
            documents_digest=build_input.report.digest,
        )
    except IndexingError:
        return None
    return manifest if manifest.params == build_input.params.list_decisive() else None


def _say_format(
    corpus_paths: CorpusPaths, before: Manifest | None, *, progress: Progress, force: bool
) -> None:
    # why all is built though nothing seems to have changed
    found = f"format {before.format_version}" if before else ""
    try:
        load_manifest(corpus_paths)
    except IndexNotBuiltError:
        return
    except IndexMismatchError as error:
        vectors = "stored vectors are taken over" if before and not force else "nothing can be kept"
        progress.say(
            f"the index of {corpus_paths.root.name} has {found or error.found}, cog reads format"
            f" {FORMAT_VERSION}: all of it is built anew; {vectors}"
        )


def _find_stored(
    corpus_paths: CorpusPaths, before: Manifest | None, key: str, parts: Path | None
) -> list[Path]:
    # folders whose vectors were made under this key, the most likely first
    versions = [(corpus_paths, before), *iter_kept(corpus_paths)]
    folders = [
        place.index / manifest.folder
        for place, manifest in versions
        if manifest is not None
        and key
        == make_vectors_key(
            model_fingerprint=manifest.model,
            vector_dtype=manifest.vectors.dtype + manifest.vectors.codes,
            numerics=manifest.numerics,
        )
    ]
    return [*folders, *([parts] if parts else [])]
