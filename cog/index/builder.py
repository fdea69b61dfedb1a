"""Building: documents and a model go in, a finished index comes out beside the old one."""

import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Protocol

from cog import __version__
from cog.corpus.documents import DocumentStore
from cog.corpus.report import PrepareReport
from cog.errors import IndexingError
from cog.index.chunking import ChunkLimits, Splitter
from cog.index.digest import make_index_digest
from cog.index.encoding import EncodedChunk, encode_window
from cog.index.locks import hold_writer_lock
from cog.index.manifest import check_index, load_manifest, save_manifest
from cog.index.quantise import get_bytes_per_word
from cog.index.reader import PhraseIndex
from cog.index.records import (
    FORMAT_VERSION,
    DocumentCounts,
    Manifest,
    SearchQuality,
    StorageCost,
    VectorFormat,
)
from cog.index.rows import make_chunk_rows, make_document_rows, make_word_rows
from cog.index.search_quality import build_search
from cog.index.searcher import FLAT
from cog.index.store import CHUNKS, DOCUMENTS, WORDS, StoreWriter, get_folder_bytes, get_schemas
from cog.index.versions import list_files, make_building_folder, place_version, remove_leftovers
from cog.index.windows import Window, WindowReader
from cog.model.protocols import ChunkEncoder, Retriever
from cog.params import IndexParams
from cog.paths import CorpusPaths
from cog.progress import Progress
from cog.records import Document

MeasureStorage = Callable[[PhraseIndex], StorageCost | None]


class BuildModel(Protocol):
    """What an index is built with; ``cog.model.load.IndexModel``."""

    @property
    def fingerprint(self) -> str:
        """Digest of the model."""

    @property
    def config(self) -> ChunkLimits:
        """How long chunks are."""

    @property
    def splitter(self) -> Splitter:
        """Splits texts into words."""

    @property
    def phrase_encoder(self) -> ChunkEncoder:
        """Encodes words."""

    @property
    def retriever(self) -> Retriever:
        """Encodes chunks for retrieval."""


@dataclass(frozen=True, slots=True)
class BuildReport:
    """What a build did.

    :param manifest: The index that is in place now.
    :param is_new: Whether it was built now; otherwise it was there already.
    """

    manifest: Manifest
    is_new: bool


@dataclass(frozen=True, slots=True)
class BuildInput:
    """What decides an index.

    :param corpus_paths: The corpus.
    :param report: What preparing its documents did.
    :param model_fingerprint: The model.
    :param params: Settings.
    """

    corpus_paths: CorpusPaths
    report: PrepareReport
    model_fingerprint: str
    params: IndexParams


def build_index(
    corpus_paths: CorpusPaths,
    *,
    locks: Path,
    model_fingerprint: str,
    load_model: Callable[[], BuildModel],
    params: IndexParams,
    progress: Progress,
    force: bool = False,
    measure_storage: MeasureStorage | None = None,
) -> BuildReport:
    """Build the index of a corpus, unless it is there already.

    It is written beside the old one; replacing the manifest is what puts it in place. A build that
    is killed at any moment leaves the old one serving, and the next build removes what it left.

    :param corpus_paths: The corpus.
    :param locks: Folder of lock files.
    :param model_fingerprint: Fingerprint of the model that ``load_model`` gives.
    :param load_model: Loads the model; called only if something is built.
    :param params: Settings.
    :param progress: Told of white-space separated words that are done.
    :param force: Build even if the index is there.
    :param measure_storage: Measures on the finished index what storing vectors in few bits costs.
    :returns: What is in place now.
    :raises IndexingError: If nothing can be indexed, or search misses its recall.
    """
    with hold_writer_lock(locks, corpus_paths.root.name, progress=progress):
        store = DocumentStore(corpus_paths.documents)
        build_input = BuildInput(corpus_paths, store.load_report(), model_fingerprint, params)
        _clean_up(corpus_paths, locks)
        current = None if force else find_current(build_input)
        if current is not None:
            progress.say(f"the index of {current.corpus} is up to date: {current.digest[:16]}")
            return BuildReport(current, is_new=False)
        building = make_building_folder(corpus_paths)
        try:
            build = _Build(building, build_input, load_model(), progress)
            manifest = build.run(store.iter_documents(), measure_storage)
            folder = place_version(building, manifest.digest)
        except BaseException:
            shutil.rmtree(building, ignore_errors=True)
            raise
        manifest = replace(manifest, folder=folder.name)
        save_manifest(corpus_paths.manifest, manifest)
        remove_leftovers(corpus_paths, keep=folder.name, locks=locks)
        return BuildReport(manifest, is_new=True)


def find_current(build_input: BuildInput) -> Manifest | None:
    """Find an index that a build would only repeat.

    :param build_input: What would be built.
    :returns: Its manifest; None if there is none, or it is damaged.
    """
    try:
        manifest = check_index(
            build_input.corpus_paths,
            model_fingerprint=build_input.model_fingerprint,
            documents_digest=build_input.report.digest,
        )
    except IndexingError:
        return None
    return manifest if manifest.params == asdict(build_input.params) else None


def _clean_up(corpus_paths: CorpusPaths, locks: Path) -> None:
    # what an unreadable manifest served is unknown: nothing is removed before a new one is in place
    try:
        keep = load_manifest(corpus_paths).folder
    except IndexingError:
        return
    remove_leftovers(corpus_paths, keep=keep, locks=locks)


class _Build:
    # one build into one folder: reading, encoding and writing overlap, a window each

    def __init__(
        self, folder: Path, build_input: BuildInput, model: BuildModel, progress: Progress
    ) -> None:
        self._folder = folder
        self._input = build_input
        self._model = model
        self._progress = progress
        self._schemas = get_schemas(model.retriever.dim)
        self._store = StoreWriter(folder, retriever_dim=model.retriever.dim)
        self._reader = WindowReader(
            model.splitter, model.config, max_chunks=build_input.params.commit_chunks
        )
        self._vectors = VectorFormat(
            dtype=build_input.params.vector_dtype,
            dim=model.phrase_encoder.dim,
            bytes_per_word=get_bytes_per_word(
                model.phrase_encoder.dim, dtype=build_input.params.vector_dtype
            ),
        )
        self._digest = make_index_digest(
            documents_digest=build_input.report.digest,
            model_fingerprint=model.fingerprint,
            vectors=self._vectors,
            retriever_dim=model.retriever.dim,
        )
        self._num_words = 0
        self._num_tokens = 0
        self._seconds: dict[str, float] = defaultdict(float)

    def run(
        self, documents: Iterable[Document], measure_storage: MeasureStorage | None
    ) -> Manifest:
        started = time.perf_counter()
        self._stream(self._reader.iter_windows(documents))
        if not self._num_words:
            corpus_id = self._input.corpus_paths.root.name
            raise IndexingError(
                f"corpus {corpus_id} needs a document with words",
                found=f"{self._input.report.num_documents} documents without",
                run=f"cog corpus show {corpus_id}",
                about=corpus_id,
            )
        sizes = {"before_compaction": get_folder_bytes(self._folder)}
        with self._timed("compact"):
            self._store.compact()
        manifest = self._state(sizes | {"after_compaction": get_folder_bytes(self._folder)})
        with self._timed("measure"):
            manifest = self._measure(manifest, measure_storage)
        with self._timed("hash"):
            files = list_files(self._folder)
        seconds = {name: round(value, 3) for name, value in self._seconds.items()}
        seconds["total"] = round(time.perf_counter() - started, 3)
        seconds["words_per_second"] = round(self._num_words / seconds["total"], 1)
        sizes = manifest.sizes | self._store.get_sizes()
        sizes["total"] = sum(entry.size_bytes for entry in files.values())
        return replace(manifest, sizes=sizes, files=files, seconds=seconds)

    def _stream(self, windows: Iterator[Window]) -> None:
        with ThreadPoolExecutor(1, "read") as reading, ThreadPoolExecutor(1, "write") as writing:
            upcoming = reading.submit(self._read, windows)
            written: Future[None] | None = None
            while (window := upcoming.result()) is not None:
                upcoming = reading.submit(self._read, windows)
                with self._timed("encode"):
                    encoded = self._encode(window)
                if written is not None:
                    written.result()
                written = writing.submit(self._write, window, encoded)
            if written is not None:
                written.result()

    def _read(self, windows: Iterator[Window]) -> Window | None:
        with self._timed("read"):
            return next(windows, None)

    def _encode(self, window: Window) -> list[EncodedChunk]:
        encoded: list[EncodedChunk | None] = [None] * len(window.chunks)
        for position, chunk in encode_window(
            window.chunks,
            phrase_encoder=self._model.phrase_encoder,
            retriever=self._model.retriever,
            batch_tokens=self._input.params.batch_tokens,
            vector_dtype=self._vectors.dtype,
        ):
            encoded[position] = chunk
            self._progress.advance(len(chunk.chunk.text.split()))
        return [chunk for chunk in encoded if chunk is not None]

    def _write(self, window: Window, encoded: list[EncodedChunk]) -> None:
        with self._timed("write"):
            batches = {
                DOCUMENTS: make_document_rows(
                    window.documents,
                    first_ordinal=window.first_ordinal,
                    schema=self._schemas[DOCUMENTS],
                ),
                CHUNKS: make_chunk_rows(
                    encoded, first_chunk_id=window.first_chunk_id, schema=self._schemas[CHUNKS]
                ),
                WORDS: make_word_rows(
                    encoded, first_chunk_id=window.first_chunk_id, schema=self._schemas[WORDS]
                ),
            }
            for table, batch in batches.items():
                self._digest.update(table, batch)
                self._store.write(table, batch)
            self._num_words += sum(item.chunk.num_words for item in encoded)
            self._num_tokens += sum(len(item.chunk.token_ids) for item in encoded)

    def _state(self, sizes: dict[str, int]) -> Manifest:
        report = self._input.report
        return Manifest(
            format_version=FORMAT_VERSION,
            corpus=self._input.corpus_paths.root.name,
            digest=self._digest.hexdigest(),
            folder="",
            documents_digest=report.digest,
            model=self._model.fingerprint,
            created_with=__version__,
            params=asdict(self._input.params),
            documents=DocumentCounts(
                num_in=report.num_read,
                num_indexed=self._reader.num_documents,
                skipped=report.skipped | self._reader.skipped,
            ),
            num_chunks=self._reader.num_chunks,
            num_words=self._num_words,
            num_tokens=self._num_tokens,
            skipped_words=self._reader.skipped_words,
            vectors=self._vectors,
            storage_cost=None,
            search=SearchQuality(
                kind=FLAT,
                dim=self._model.retriever.dim,
                num_rows=self._reader.num_chunks,
                num_lists=0,
                num_probes=0,
                recall_at=0,
                recall=0.0,
            ),
            sizes=sizes,
            files={},
            seconds={},
        )

    def _measure(self, manifest: Manifest, measure_storage: MeasureStorage | None) -> Manifest:
        with PhraseIndex(self._folder, manifest) as index:
            search = build_search(index, retriever=self._model.retriever, params=self._input.params)
        manifest = replace(manifest, search=search)
        if measure_storage is not None:
            with PhraseIndex(self._folder, manifest) as index:
                manifest = replace(manifest, storage_cost=measure_storage(index))
        return manifest

    @contextmanager
    def _timed(self, part: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[part] += time.perf_counter() - started
