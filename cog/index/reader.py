"""The phrase index, open for reading: vectors and chunk ids go in, chunks and words come out."""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path
from types import TracebackType

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cog.errors import IndexMismatchError
from cog.index.chunk_search import ChunkSearch
from cog.index.contexts import CONTEXTS, Contexts, load_blocks
from cog.index.gather import WordArrays
from cog.index.kept import find_version
from cog.index.locks import ReaderLock
from cog.index.manifest import check_index, get_index_uri, load_manifest, mismatch
from cog.index.records import ChunkRange, GatheredChunks, Manifest
from cog.index.remote import fetch_files
from cog.index.searcher import (
    FLAT,
    SEARCHER,
    Neighbours,
    Searcher,
    load_ivf_searcher,
    make_flat_searcher,
)
from cog.index.store import CHUNKS, DOCUMENTS, WORDS, StoreReader
from cog.index.word_counts import WORD_COUNTS, WordCounts, load_counts
from cog.paths import CorpusPaths
from cog.records import Document

NUM_TAKES = 2  # LanceDB reads one take mostly on one core
UNREADABLE = (OSError, ValueError, EOFError)  # what NumPy raises for a damaged file
MIN_SPLIT_CHUNKS = 64  # below this a second take costs more than it saves


def open_index(
    corpus_paths: CorpusPaths,
    *,
    locks: Path,
    corpus_id: str,
    model_fingerprint: str | None,
    documents_digest: str | None,
    digest: str | None = None,
) -> "PhraseIndex":
    """Open the index of a corpus, and keep it from being removed until it is closed.

    :param corpus_paths: The corpus.
    :param locks: Folder of lock files.
    :param corpus_id: The corpus.
    :param model_fingerprint: The model it must have been built with; None for any.
    :param documents_digest: The documents it must have been built from; None for any.
    :param digest: The version to open, in place or kept; None for the one in place.
    :returns: The index; close it, or use it as a context manager.
    :raises IndexNotBuiltError: If there is no index.
    :raises IndexMismatchError: If it is damaged, or belongs to something else.
    """
    while True:
        place = corpus_paths if digest is None else _find_place(corpus_paths, digest)
        folder = load_manifest(place).folder
        lock = ReaderLock(locks, corpus_id, folder)
        try:
            stated = load_manifest(place)
            if stated.folder == folder and digest in (None, stated.digest):
                manifest = check_index(
                    place, model_fingerprint=model_fingerprint, documents_digest=documents_digest
                )
                if manifest.folder == folder:
                    tables = place.index / folder
                    uri = "" if tables.is_dir() else get_index_uri(place)
                    return PhraseIndex(tables, manifest, lock=lock, uri=uri)
        except BaseException:
            lock.release()
            raise
        lock.release()  # a build put another version in place meanwhile


def _find_place(corpus_paths: CorpusPaths, digest: str) -> CorpusPaths:
    place = find_version(corpus_paths, digest)
    if place is None:
        corpus_id = corpus_paths.root.name
        raise IndexMismatchError(
            f"corpus {corpus_id} needs the index {digest[:16]}",
            found="no such version on this machine",
            run=f"cog switch --corpus {corpus_id} --index {digest[:16]}",
            about=corpus_id,
        )
    return place


class PhraseIndex(ChunkSearch):
    """The index of one corpus.

    :param folder: The version folder.
    :param manifest: What it states about itself.
    :param lock: What keeps the folder from being removed; None if nothing has to.
    :param uri: Address of an object store, from which tables are read that are not here.
    :raises IndexMismatchError: If the tables are not what the manifest says.
    """

    def __init__(
        self, folder: Path, manifest: Manifest, *, lock: ReaderLock | None = None, uri: str = ""
    ) -> None:
        self.folder = folder
        self.manifest = manifest
        self._lock = lock
        self._uri = uri
        self._store = StoreReader(folder, uri=uri)
        self._pool = ThreadPoolExecutor(NUM_TAKES, thread_name_prefix="gather")
        for table, wanted in (
            (DOCUMENTS, manifest.documents.num_indexed),
            (CHUNKS, manifest.num_chunks),
            (WORDS, manifest.num_chunks),
        ):
            if self._store.count_rows(table) != wanted:
                found = f"{self._store.count_rows(table)} rows"
                raise mismatch(manifest.corpus, f"{wanted} rows of {table}", found, force=True)
        counts = [
            np.stack([column.to_numpy() for column in batch.columns])
            for batch in self.iter_rows(CHUNKS, columns=["num_words", "num_tokens"])
        ]
        self._num_words, self._num_tokens = np.concatenate(counts, axis=1)  # (num_chunks,) each
        self._searcher: Searcher | None = None

    def __enter__(self) -> "PhraseIndex":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the version folder."""
        self._pool.shutdown()
        if self._lock is not None:
            self._lock.release()

    @property
    def is_remote(self) -> bool:
        """Whether the tables are read from an object store.

        :returns: True if they are not on this machine.
        """
        return self._store.is_remote

    @property
    def dim(self) -> int:
        """Width of a start vector, and of an end vector.

        :returns: The width.
        """
        return self.manifest.vectors.dim

    @property
    def num_chunks(self) -> int:
        """Number of chunks.

        :returns: The count.
        """
        return self.manifest.num_chunks

    def search_neighbours(
        self,
        vectors: NDArray[np.float32],
        *,
        top_k: int,
        allowed: NDArray[np.bool_] | None = None,
    ) -> Neighbours:
        """Find the nearest chunks, with their scores.

        :param vectors: *Shape:* ``(batch, retriever_dim)``
        :param top_k: Number of chunks per vector.
        :param allowed: Chunks that may be found; None for all. *Shape:* ``(num_chunks,)``
        :returns: Chunk ids and inner products, best first.
        :raises ValueError: If the width is wrong.
        """
        if vectors.ndim != 2 or vectors.shape[1] != self.manifest.search.dim:
            raise ValueError(f"vectors must be (batch, {self.manifest.search.dim})")
        if self._searcher is None:
            self._searcher = self._load_searcher()
        return self._searcher.search(vectors, top_k=top_k, allowed=allowed)

    def gather_chunks(self, chunk_ids: NDArray[np.int64]) -> GatheredChunks:
        """Read the words of some chunks.

        :param chunk_ids: Chunks, each once, in any order. *Shape:* ``(num_chunks,)``
        :returns: Their words, in the order asked for.
        """
        chunk_ids = self.check_chunk_ids(chunk_ids)
        num_parts = NUM_TAKES if len(chunk_ids) >= MIN_SPLIT_CHUNKS else 1
        order = np.argsort(chunk_ids, kind="stable")
        arrays = WordArrays.allocate(
            chunk_ids,
            num_words=self._num_words[chunk_ids],
            num_tokens=self._num_tokens[chunk_ids],
            vector_shape=(self.dim, self.manifest.vectors.dtype),
        )
        jobs = [
            self._pool.submit(self._gather_part, arrays, slots)
            for slots in np.array_split(order, num_parts)
        ]
        for job in jobs:
            job.result()
        return arrays.gathered

    def get_documents(self, ordinals: Iterable[int]) -> dict[int, Document]:
        """Read a few documents.

        :param ordinals: Positions in the index, as ``document_ordinals`` of gathered chunks.
        :returns: Documents by position.
        :raises ValueError: If a position is out of range.
        """
        positions = np.unique(np.array(list(ordinals), dtype=np.int64))
        num_documents = self.manifest.documents.num_indexed
        if len(positions) and not 0 <= positions[0] <= positions[-1] < num_documents:
            raise ValueError(f"document ordinals must be in [0, {num_documents})")
        if not len(positions):
            return {}
        rows = self._store.take(DOCUMENTS, positions).to_pylist()
        names = [field.name for field in fields(Document)]
        return {row["ordinal"]: Document(**{name: row[name] for name in names}) for row in rows}

    def get_corpus_id(self, ordinal: int) -> str:
        """The corpus that a document belongs to.

        :param ordinal: Position of the document in the index.
        :returns: The corpus id.
        :raises ValueError: If the position is out of range.
        """
        if not 0 <= ordinal < self.manifest.documents.num_indexed:
            raise ValueError(f"no document {ordinal}")
        return self.manifest.corpus

    def document_licences(self) -> list[str]:
        """The licence of every document.

        :returns: Licences by position in the index.
        """
        return self._read_column("licence")

    def document_ids(self) -> list[str]:
        """The id of every document.

        :returns: Ids by position in the index.
        """
        return self._read_column("document_id")

    def _read_column(self, name: str) -> list[str]:
        batches = self.iter_rows(DOCUMENTS, columns=[name])
        return [value for batch in batches for value in batch.column(0).to_pylist()]

    def chunk_documents(self) -> NDArray[np.int64]:
        """The document of every chunk.

        :returns: Positions in the index, by chunk. *Shape:* ``(num_chunks,)``
        """
        batches = self.iter_rows(CHUNKS, columns=["document_ordinal"])
        ordinals = [batch.column(0).to_numpy() for batch in batches]
        return np.concatenate([np.zeros(0, dtype=np.int64), *ordinals])

    def get_chunk_ranges(self, chunk_ids: NDArray[np.int64]) -> list[ChunkRange]:
        """Where some chunks lie.

        :param chunk_ids: Chunks in ascending order, each once. *Shape:* ``(num_chunks,)``
        :returns: Their ranges, in the same order.
        """
        columns = [field.name for field in fields(ChunkRange)]
        rows = self._store.take(CHUNKS, chunk_ids, columns=columns).to_pylist()
        return [ChunkRange(**{name: row[name] for name in columns}) for row in rows]

    def load_contexts(self) -> Contexts:
        """Open what tokens are looked up in.

        :returns: The contexts.
        """
        try:
            contexts = Contexts(load_blocks(self._get_folder(CONTEXTS)))
        except UNREADABLE as error:
            raise self._refuse("readable contexts", str(error)) from error
        if contexts.num_chunks != self.num_chunks:
            found = f"{contexts.num_chunks} chunks"
            raise self._refuse(f"contexts of {self.num_chunks} chunks", found)
        return contexts

    def load_word_counts(self) -> WordCounts:
        """Read how often each word stands in the index.

        :returns: The counts.
        """
        try:
            counts = load_counts(self._get_folder(WORD_COUNTS))
        except UNREADABLE as error:
            raise self._refuse("readable word counts", str(error)) from error
        if counts.num_words != self.manifest.num_words:
            found = f"{counts.num_words} words"
            raise self._refuse(f"counts of {self.manifest.num_words} words", found)
        return counts

    def _refuse(self, wanted: str, found: str) -> IndexMismatchError:
        return mismatch(self.manifest.corpus, wanted, found, force=True)

    def iter_vectors(self) -> Iterator[NDArray[np.float32]]:
        """Stream the retriever vectors of all chunks.

        :yields: Blocks in chunk order. *Shape:* ``(num_rows, retriever_dim)``
        """
        for batch in self.iter_rows(CHUNKS, columns=["vector"]):
            vectors = batch.column(0).flatten().to_numpy()
            yield vectors.reshape(-1, self.manifest.search.dim)

    def iter_rows(
        self, table: str, *, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Stream the rows of a table, for checks.

        :param table: Name of the table.
        :param columns: Columns to read; None for all.
        :yields: Rows in canonical order.
        """
        yield from self._store.iter_batches(table, columns=columns)

    def _load_searcher(self) -> Searcher:
        quality = self.manifest.search
        try:
            if quality.kind == FLAT:
                return make_flat_searcher(self.iter_vectors(), quality)
            return load_ivf_searcher(self._get_folder(SEARCHER), quality)
        except RuntimeError as error:  # what FAISS raises for a file it cannot read
            raise self._refuse("a readable searcher", str(error)) from error

    def _get_folder(self, start: str) -> Path:
        # where files lie that are no tables
        return fetch_files(self.manifest, self._uri, start) if self.is_remote else self.folder

    def _gather_part(self, arrays: WordArrays, slots: NDArray[np.int64]) -> None:
        if not len(slots):
            return
        rows = self._store.take(WORDS, arrays.gathered.chunk_ids[slots])
        try:
            arrays.fill(rows, slots)
        except ValueError as error:
            raise self._refuse("words that fit its chunks", str(error)) from error
