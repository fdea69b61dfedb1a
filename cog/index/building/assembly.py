"""Assembling: documents and a model go in, the tables of one version folder come out."""

import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from cog.corpus.report import PrepareReport
from cog.errors import IndexingError
from cog.index.building.encoding import EncodedChunk, Encoders, OpenPool, PendingChunks, Pool
from cog.index.building.reuse import StoredChunks, adopt
from cog.index.building.rows import make_rows
from cog.index.building.search_quality import build_search
from cog.index.building.windows import Window, WindowReader
from cog.index.chunking import hash_content
from cog.index.read.part import IndexPart
from cog.index.read.reader import PhraseIndex
from cog.index.records import (
    FLAT,
    FORMAT_VERSION,
    DocumentCounts,
    Manifest,
    SearchQuality,
    StorageCost,
    VectorFormat,
)
from cog.index.search.contexts import COLUMNS, CONTEXTS, iter_blocks, save_blocks
from cog.index.tables.digest import get_binary_buffers, make_index_digest
from cog.index.tables.lists import CHUNK_INDICES
from cog.index.tables.quantise import get_vector_type, make_layout
from cog.index.tables.store import (
    CHUNKS,
    DOCUMENTS,
    ID_COLUMNS,
    WORDS,
    StoreReader,
    StoreWriter,
    get_schemas,
)
from cog.index.tables.word_counts import WORD_COUNTS, WordCounter, save_counts
from cog.index.versions.folders import get_folder_bytes, list_files
from cog.model.vector_code import VectorCodes
from cog.params import IndexParams
from cog.paths import CorpusPaths
from cog.progress import Progress
from cog.records import Document
from cog.version import __version__

if TYPE_CHECKING:
    from cog.model.load import IndexModel  # torch, which an index is read without

MAX_ALONE = 48  # chunks of a window that are encoded one by one
INT8_STEP = 0.5 / 127  # of what rounding to int8 changes, at most, as a share likewise
MAX_ANEW_SHARE = 0.1  # of the chunks; above, what storage costs is measured again
MeasureStorage = Callable[[PhraseIndex], StorageCost | None]


@dataclass(frozen=True, slots=True)
class BuildInput:
    """What decides an index."""

    corpus_paths: CorpusPaths
    report: PrepareReport
    model_fingerprint: str
    params: IndexParams
    codes: VectorCodes | None = None  # of compact vectors


@dataclass(frozen=True, slots=True)
class _BegunWindow:
    # a window whose chunks are read from what is stored, or are being encoded
    window: Window
    hashes: list[bytes]  # of the content of each chunk
    encoded: dict[int, EncodedChunk]  # those that were stored, by position
    firsts: dict[bytes, int]  # position of the chunk that is encoded, by content
    pending: PendingChunks | None  # in the order of `firsts`


class Assembly:
    """One build into one folder: reading, encoding and writing overlap."""

    def __init__(
        self, folder: Path, build_input: BuildInput, model: "IndexModel", progress: Progress
    ) -> None:
        self._folder = folder
        self._input = build_input
        self._model = model
        self._progress = progress
        dtype, codes = build_input.params.vector_dtype, build_input.codes
        kind = pa.from_numpy_dtype(get_vector_type(dtype))
        self._schemas = get_schemas(model.retriever.dim, vector_type=kind)
        self._store = StoreWriter(folder, schemas=self._schemas)
        self._reader = WindowReader(
            model.splitter, model.config, max_chunks=build_input.params.commit_chunks
        )
        self._encoders = Encoders(model.phrase_encoder, model.retriever, dtype, codes)
        dim = model.phrase_encoder.dim
        self._vectors = VectorFormat(
            dtype=dtype,
            dim=dim,
            bytes_per_word=make_layout(dtype, dim, codes=codes).bytes_per_word,
            codes=codes.digest() if codes else "",
        )
        self._digest = make_index_digest(
            documents_digest=build_input.report.digest,
            model_fingerprint=model.fingerprint,
            vectors=self._vectors,
            retriever_dim=model.retriever.dim,
        )
        self._counter = WordCounter()
        self._num_words = 0
        self._num_tokens = 0
        self._num_encoded = 0
        self._is_alone: bool | None = None
        self._seconds: dict[str, float] = defaultdict(float)

    @property
    def is_begun(self) -> bool:
        """Whether a window is written."""
        return self._num_words > 0

    def run(
        self,
        documents: Iterable[Document],
        stored: StoredChunks,
        *,
        open_pool: OpenPool,
        measure_storage: MeasureStorage | None,
        before: Manifest | None,
    ) -> Manifest:
        """Write the tables and measure them.

        Gives what the index states; its folder is not named yet. What storing vectors costs is
        taken from ``before`` where little is encoded anew.
        """
        started = time.perf_counter()
        with open_pool(self._model, self._encoders) as pool:
            self._stream(self._reader.iter_windows(documents), stored, pool)
        if not self._num_words:
            corpus_id = self._input.corpus_paths.root.name
            raise IndexingError(
                f"corpus {corpus_id} needs a document with words",
                found=f"{self._input.report.num_documents} documents without",
                run=f"cog corpus show {corpus_id}",
            )
        sizes = {"before_compaction": get_folder_bytes(self._folder)}
        with self._timed("compact"):
            self._store.compact()
            self._check_rows()
        manifest = self._state(sizes | {"after_compaction": get_folder_bytes(self._folder)})
        with self._timed("contexts"):
            self._derive(manifest)
        with self._timed("measure"):
            manifest = self._measure(manifest, measure_storage, before)
        with self._timed("hash"):
            files = list_files(self._folder)
        seconds = {name: round(value, 3) for name, value in self._seconds.items()}
        seconds["total"] = round(time.perf_counter() - started, 3)
        seconds["words_per_second"] = round(self._num_words / seconds["total"], 1)
        sizes = manifest.sizes | self._store.get_sizes()
        starts = {"contexts": CONTEXTS, "word_counts": WORD_COUNTS, "search": CHUNK_INDICES}
        for part, start in starts.items():
            sizes[part] = sum(
                each.size_bytes for name, each in files.items() if name.startswith(start)
            )
        sizes["total"] = sum(entry.size_bytes for entry in files.values())
        return replace(manifest, sizes=sizes, files=files, seconds=seconds)

    def _stream(self, windows: Iterator[Window], stored: StoredChunks, pool: Pool) -> None:
        begun: deque[_BegunWindow] = deque()
        with ThreadPoolExecutor(1, "read") as reading, ThreadPoolExecutor(1, "write") as writing:
            upcoming: Future[Window | None] | None = reading.submit(self._read, windows)
            written: Future[None] | None = None
            while True:
                while upcoming is not None and len(begun) < pool.num_windows:
                    window = upcoming.result()
                    upcoming = None if window is None else reading.submit(self._read, windows)
                    if window is not None:
                        with self._timed("encode"):
                            begun.append(self._begin(window, stored, pool))
                if not begun:
                    break
                # in order, whichever is done first: rows and their digest are those of one machine
                first = begun.popleft()
                with self._timed("encode"):
                    encoded = self._finish(first)
                if written is not None:
                    written.result()
                written = writing.submit(self._write, first.window, encoded)
            if written is not None:
                written.result()

    def _read(self, windows: Iterator[Window]) -> Window | None:
        with self._timed("read"):
            return next(windows, None)

    def _begin(self, window: Window, stored: StoredChunks, pool: Pool) -> _BegunWindow:
        chunks = window.chunks
        hashes = [hash_content(chunk.text, chunk.word_chars) for chunk in chunks]
        with self._timed("reuse"):
            encoded = stored.load(chunks, hashes)
        firsts: dict[bytes, int] = {}
        for position, content in enumerate(hashes):
            if position not in encoded:
                firsts.setdefault(content, position)
        pending = None
        if firsts:
            pending = PendingChunks(
                [chunks[each] for each in firsts.values()],
                encoders=self._encoders,
                pool=pool,
                batch_tokens=self._get_batch_tokens(pool, num_chunks=len(firsts)),
            )
        self._num_encoded += len(firsts)
        return _BegunWindow(window, hashes, encoded, firsts, pending)

    def _finish(self, begun: _BegunWindow) -> list[EncodedChunk]:
        chunks, encoded, anew = begun.window.chunks, begun.encoded, list(begun.firsts.values())
        self._progress.advance(sum(len(chunks[i].text.split()) for i in encoded))
        if begun.pending is not None:
            for i, chunk in begun.pending.iter_encoded():
                encoded[anew[i]] = replace(chunk, chunk=chunks[anew[i]])
                self._progress.advance(len(chunk.chunk.text.split()))
        for position, content in enumerate(begun.hashes):
            if position not in encoded:
                encoded[position] = adopt(encoded[begun.firsts[content]], chunks[position])
                self._progress.advance(len(chunks[position].text.split()))
        return [encoded[position] for position in range(len(chunks))]

    def _get_batch_tokens(self, pool: Pool, *, num_chunks: int) -> int:
        is_alone = num_chunks <= MAX_ALONE  # too few for batches to gain what trying them costs
        if not is_alone:
            if self._is_alone is None:
                self._is_alone = self._must_be_alone(pool)
            is_alone = self._is_alone
        return 0 if is_alone else self._input.params.batch_tokens

    def _must_be_alone(self, pool: Pool) -> bool:
        # whether a chunk must be encoded alone for its vectors to be what they shall be
        change = pool.submit(Encoders.measure_batch_change).result()
        if change == 0.0:
            return False
        is_alone = change > self._model.batch_tolerance
        self._progress.say(
            f"vectors move by {change:.0e} of their largest value with the batch that they are "
            f"encoded in ({self._model.numerics}; int8 rounds to {INT8_STEP:.0e}): "
            + (
                "every chunk is encoded alone, which takes several times as long"
                if is_alone
                else "another build may differ in as much"
            )
        )
        return is_alone

    def _write(self, window: Window, encoded: list[EncodedChunk]) -> None:
        with self._timed("write"):
            batches = make_rows(window, encoded, self._schemas)
            for table, batch in batches.items():
                self._digest.update(table, batch)
                self._store.write(table, batch)
            offsets, hashes = get_binary_buffers(batches[WORDS].column("word_hashes"))
            words = np.split(hashes.view(np.uint64), offsets[1:-1] // 8)
            for item, word_hashes in zip(encoded, words, strict=True):
                self._counter.add(word_hashes, item.chunk.text, item.chunk.word_chars)
            self._num_words += sum(item.chunk.num_words for item in encoded)
            self._num_tokens += sum(len(item.chunk.token_ids) for item in encoded)

    def _check_rows(self) -> None:
        # whoever encoded and however often: each document and chunk is there once, in order
        store = StoreReader(self._folder, self._input.corpus_paths.root.name)
        numbers = {DOCUMENTS: self._reader.num_documents} | dict.fromkeys(
            (CHUNKS, WORDS), self._reader.num_chunks
        )
        for table, number in numbers.items():
            if store.count_rows(table) != number:
                raise store.refuse(f"{number} rows of {table}", f"{store.count_rows(table)} rows")
            for _ in store.iter_rows(table, columns=[ID_COLUMNS[table]]):
                pass  # which refuses other ids than 0 and what follows

    def _state(self, sizes: dict[str, int]) -> Manifest:
        report = self._input.report
        return Manifest(
            format_version=FORMAT_VERSION,
            corpus=self._input.corpus_paths.root.name,
            digest=self._digest.hexdigest(),
            folder="",
            documents_digest=report.digest,
            model=self._model.fingerprint,
            numerics=self._model.numerics,
            created_with=__version__,
            built_at=datetime.now(UTC).isoformat(timespec="seconds"),
            params=self._input.params.list_decisive(),
            documents=DocumentCounts(
                num_in=report.num_read,
                num_indexed=self._reader.num_documents,
                skipped=report.skipped | self._reader.skipped,
            ),
            num_chunks=self._reader.num_chunks,
            num_encoded=self._num_encoded,
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

    def _derive(self, manifest: Manifest) -> None:
        # from rows, so that it is the same whatever was encoded by this build
        rows = IndexPart(self._folder, manifest).iter_rows(WORDS, columns=COLUMNS)
        save_blocks(self._folder, iter_blocks(rows))
        save_counts(self._folder, self._counter.get_counts())
        if self._input.codes is not None:
            self._input.codes.save(self._folder)

    def _measure(
        self, manifest: Manifest, measure_storage: MeasureStorage | None, before: Manifest | None
    ) -> Manifest:
        search = build_search(
            IndexPart(self._folder, manifest),
            retriever=self._model.retriever,
            params=self._input.params,
        )
        manifest = replace(manifest, search=search)
        cost = _get_cost_before(manifest, before)
        if measure_storage is not None and cost is None:
            with PhraseIndex([IndexPart(self._folder, manifest)]) as index:
                cost = measure_storage(index)
        return replace(manifest, storage_cost=cost)

    @contextmanager
    def _timed(self, part: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[part] += time.perf_counter() - started


def _get_cost_before(manifest: Manifest, before: Manifest | None) -> StorageCost | None:
    # what storage costs is a property of model and text: it holds where nearly all text is the same
    if (
        before is None
        or before.storage_cost is None
        or (before.model, before.params) != (manifest.model, manifest.params)
        or manifest.num_encoded > MAX_ANEW_SHARE * manifest.num_chunks
    ):
        return None
    measured_on = before.storage_cost.measured_on or before.digest
    return replace(before.storage_cost, measured_on=measured_on)
