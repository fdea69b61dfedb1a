"""Reuse: chunks go in, the vectors that an earlier build stored for the same chunks come out."""

import hashlib
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cog.closing import Closing
from cog.errors import IndexingError
from cog.index.building.encoding import EncodedChunk
from cog.index.building.rows import hash_vectors
from cog.index.chunking import Chunk
from cog.index.records import VECTORS_VERSION
from cog.index.tables.digest import get_hash_heads
from cog.index.tables.quantise import Layout, StoredVectors
from cog.index.tables.store import CHUNKS, WORDS, StoreReader
from cog.index.versions.folders import TABLES
from cog.locks import SharedLock
from cog.model.words import BARRED
from cog.paths import CorpusPaths
from cog.progress import Progress

VECTOR_COLUMNS = ("start_vectors", "start_scales", "end_vectors", "end_scales", "word_flags")


def make_vectors_key(*, model_fingerprint: str, vector_dtype: str, numerics: str) -> str:
    """Name what the vectors of a chunk depend on, but for the chunk, by 16 hexadecimal digits."""
    parts = (str(VECTORS_VERSION), model_fingerprint, vector_dtype, numerics)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class _Source:
    # one folder with tables: which chunks it holds, sorted by the head of their hashes
    store: StoreReader
    heads: NDArray[np.uint64]
    rows: NDArray[np.int64]


class StoredChunks(Closing):
    """The chunks of finished versions, and of builds that did not finish.

    What cannot be read, or is not what its checksum says, is encoded again. All folders are of one
    vectors key; the first with a chunk gives it. They are kept from being removed meanwhile.
    """

    def __init__(
        self,
        folders: Iterable[Path],
        *,
        corpus_paths: CorpusPaths,
        layout: Layout,
        progress: Progress,
    ) -> None:
        self._layout = layout
        self._sources: list[_Source] = []
        self._stack = ExitStack()
        self._progress = progress
        for folder in folders:
            if folder.name != TABLES:  # of a build that is not finished: its lock is held already
                lock = SharedLock(corpus_paths.lock(folder.name))
                self._stack.callback(lock.release)
            try:
                self._sources.append(_open_source(folder, corpus_paths.root.name))
            except IndexingError as error:
                progress.say(f"what {folder.name} holds cannot be reused: {error.found}")

    def close(self) -> None:
        """Close what is held."""
        self._stack.close()

    def load(self, chunks: Sequence[Chunk], hashes: Sequence[bytes]) -> dict[int, EncodedChunk]:
        """Read the vectors of those chunks of a window that were encoded before, by position."""
        heads = np.frombuffer(b"".join(each[:8] for each in hashes), dtype="<u8")
        loaded: dict[int, EncodedChunk] = {}
        for source in list(self._sources):
            wanted = np.array([i for i in range(len(chunks)) if i not in loaded], dtype=np.int64)
            if not len(wanted) or not len(source.heads):
                continue
            slots = np.searchsorted(source.heads, heads[wanted])
            slots[slots == len(source.heads)] = 0  # past the end; the comparison refuses it
            is_there = source.heads[slots] == heads[wanted]
            try:
                self._load_from(source, wanted[is_there], slots[is_there], loaded, chunks, hashes)
            except IndexingError as error:
                self._progress.say(f"stored vectors cannot be read and are encoded: {error.found}")
                self._sources.remove(source)
        return loaded

    def _load_from(
        self,
        source: _Source,
        positions: NDArray[np.int64],
        slots: NDArray[np.int64],
        loaded: dict[int, EncodedChunk],
        chunks: Sequence[Chunk],
        hashes: Sequence[bytes],
    ) -> None:
        if not len(positions):
            return
        # a table gives rows in ascending order, each once; chunks of a window may be the same
        rows, inverse = np.unique(source.rows[slots], return_inverse=True)
        words = source.store.take(WORDS, rows, columns=VECTOR_COLUMNS)
        stated = source.store.take(CHUNKS, rows, columns=["content_hash", "vectors_hash", "vector"])
        vectors = stated.column("vector").combine_chunks().flatten().to_numpy()
        vectors = vectors.reshape(len(rows), -1)
        content, checksums = stated.column("content_hash"), stated.column("vectors_hash")
        for position, row in zip(positions.tolist(), inverse.tolist(), strict=True):
            if content[row].as_py() != hashes[position]:
                continue  # only the heads of the hashes were equal
            found = self._read_row(words, row, chunk=chunks[position], vector=vectors[row])
            if found is not None and hash_vectors(found) == checksums[row].as_py():
                loaded[position] = adopt(found, chunks[position])

    def _read_row(
        self, words: pa.Table, row: int, *, chunk: Chunk, vector: NDArray[np.floating[Any]]
    ) -> EncodedChunk | None:
        columns = [words.column(name)[row].as_buffer() for name in VECTOR_COLUMNS]
        kind, width, scale_bytes = self._layout.kind, self._layout.width, self._layout.scale_bytes
        sizes = [width * kind.itemsize, scale_bytes, width * kind.itemsize, scale_bytes, 1]
        if [len(each) for each in columns] != [size * chunk.num_words for size in sizes]:
            return None
        kinds: list[Any] = [kind, np.float32, kind, np.float32, np.uint8]
        arrays: list[Any] = [
            np.frombuffer(column, dtype=each) for column, each in zip(columns, kinds, strict=True)
        ]
        shape = (chunk.num_words, width)
        return EncodedChunk(
            chunk=chunk,
            start=StoredVectors(arrays[0].reshape(shape), arrays[1]),
            end=StoredVectors(arrays[2].reshape(shape), arrays[3]),
            word_flags=arrays[4],
            vector=vector,
        )


def adopt(encoded: EncodedChunk, chunk: Chunk) -> EncodedChunk:
    """Give a chunk the vectors, and the bars of words, of another with the same text and words."""
    flags = chunk.word_flags | (encoded.word_flags & np.uint8(BARRED))
    return replace(encoded, chunk=chunk, word_flags=flags)


def _open_source(folder: Path, corpus_id: str) -> _Source:
    store = StoreReader(folder, corpus_id)
    num_rows = min(store.count_rows(CHUNKS), store.count_rows(WORDS))
    heads = get_hash_heads(store.iter_rows(CHUNKS, columns=["content_hash"]))[:num_rows]
    order = np.argsort(heads, kind="stable")
    return _Source(store, heads[order], order)
