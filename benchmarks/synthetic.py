"""Indexes of millions of chunks, made of nothing: a number goes in, tables on disk come out.

They are written by the project's own writers, with short chunks of random words, and vectors that
lie in groups as those of texts do: topics, groups of a topic, chunks of a group, each the one
before and noise. A prefix is a chunk with noise of its own.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.common import say
from cog.index.building.search_quality import build_search
from cog.index.read.part import IndexPart
from cog.index.records import (
    FLAT,
    FORMAT_VERSION,
    DocumentCounts,
    FileEntry,
    Manifest,
    SearchQuality,
    VectorFormat,
)
from cog.index.search.contexts import COLUMNS, iter_blocks, save_blocks
from cog.index.tables.store import CHUNKS, DOCUMENTS, WORDS, StoreWriter, get_schemas
from cog.index.tables.word_counts import WordCounts, save_counts
from cog.index.versions.folders import get_folder_bytes
from cog.index.versions.manifest import save_manifest
from cog.params import IndexParams
from cog.paths import CorpusPaths

RETRIEVER_DIM, WORD_DIM = 384, 288
NUM_WORDS = 4  # of a chunk
WORD_CHARS = 8  # of a word; the first two words of a chunk are its number
CHUNK_CHARS = NUM_WORDS * WORD_CHARS
CHUNKS_PER_DOCUMENT = 4
CHUNKS_PER_GROUP = 40  # fewer than are searched for, so that those of near groups count, too
GROUPS_PER_TOPIC = 50
CHUNKS_PER_WRITE = 1 << 16
NOISE = 0.8  # length of what is added to a vector of length 1
VOCABULARY = 50_000
LICENCES = ("CC0-1.0", "CC-BY-4.0", "CC-BY-SA-4.0")
PEAK_BYTES = 2 * (NUM_WORDS * 650 + RETRIEVER_DIM * 4)  # a chunk, while tables are compacted


def add_noise(vectors: NDArray[np.float32], random: np.random.Generator) -> NDArray[np.float32]:
    """Move vectors a little, and bring them to length 1.

    :param vectors: The vectors. *Shape:* ``(num_vectors, dim)``
    :param random: What the noise is drawn from.
    :returns: As many vectors.
    """
    noise = random.standard_normal(vectors.shape, dtype=np.float32)
    moved = vectors + noise * np.float32(NOISE / vectors.shape[1] ** 0.5)
    return moved / np.linalg.norm(moved, axis=1, keepdims=True)


class ChunkRetriever:
    """Encodes a text that begins with the number of a chunk as that chunk's vector and noise.

    :param part: The tables.
    """

    dim = RETRIEVER_DIM

    def __init__(self, part: IndexPart) -> None:
        self._part = part

    def count_pieces(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Not needed here."""
        raise NotImplementedError

    def encode_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Encode them."""
        ids = np.array([int(text[:10]) for text in texts], dtype=np.int64)
        unique, places = np.unique(ids, return_inverse=True)
        rows = self._part.take(CHUNKS, unique, columns=["vector"])
        vectors = rows.column(0).combine_chunks().flatten().to_numpy().reshape(len(unique), -1)
        return add_noise(vectors[places], np.random.default_rng(int(ids[0]) + 1))


def iter_batches(num_chunks: int) -> Iterator[dict[str, pa.RecordBatch]]:
    """Make the rows of the tables, some chunks after the other.

    :param num_chunks: Number of chunks.
    :yields: A batch for each table.
    """
    schemas = get_schemas(RETRIEVER_DIM)
    random = np.random.default_rng(0)
    num_groups = max(1, num_chunks // CHUNKS_PER_GROUP)
    num_topics = max(1, num_groups // GROUPS_PER_TOPIC)
    topics = random.standard_normal((num_topics, RETRIEVER_DIM), dtype=np.float32)
    topics /= np.linalg.norm(topics, axis=1, keepdims=True)
    centres = add_noise(topics[random.integers(0, num_topics, num_groups)], random)
    for first in range(0, num_chunks, CHUNKS_PER_WRITE):
        ids = np.arange(first, min(first + CHUNKS_PER_WRITE, num_chunks), dtype=np.int64)
        vectors = add_noise(centres[random.integers(0, num_groups, len(ids))], random)
        columns = {
            DOCUMENTS: make_documents(np.unique(ids // CHUNKS_PER_DOCUMENT)),
            CHUNKS: make_chunks(ids, vectors),
            WORDS: make_words(ids, random),
        }
        yield {
            table: pa.RecordBatch.from_arrays(
                [pa.array(columns[table][field.name], field.type) for field in schema],
                schema=schema,
            )
            for table, schema in schemas.items()
        }


def make_documents(ordinals: NDArray[np.int64]) -> dict[str, Any]:
    """Documents whose chunks begin with their numbers.

    :param ordinals: Their positions.
    :returns: Columns.
    """
    numbers = ordinals.tolist()
    texts = [
        "".join(
            f"{CHUNKS_PER_DOCUMENT * number + i:010d}".ljust(CHUNK_CHARS, "x")
            for i in range(CHUNKS_PER_DOCUMENT)
        )
        for number in numbers
    ]
    names = [f"d{number}" for number in numbers]
    licences = [LICENCES[number % len(LICENCES)] for number in numbers]
    return {
        "ordinal": ordinals,
        "document_id": names,
        "title": names,
        "text": texts,
        "url": names,
        "licence": licences,
        "source": names,
    }


def make_chunks(ids: NDArray[np.int64], vectors: NDArray[np.float32]) -> dict[str, Any]:
    """Chunks of equal length.

    :param ids: Their ids.
    :param vectors: Their vectors. *Shape:* ``(num_chunks, dim)``
    :returns: Columns.
    """
    starts = (ids % CHUNKS_PER_DOCUMENT * CHUNK_CHARS).astype(np.int32)
    counts = np.full(len(ids), NUM_WORDS, dtype=np.int32)
    return {
        "chunk_id": ids,
        "document_ordinal": ids // CHUNKS_PER_DOCUMENT,
        "char_start": starts,
        "char_end": starts + CHUNK_CHARS,
        "num_words": counts,
        "num_tokens": counts,
        "content_hash": to_binary(ids[:, None]),
        "vectors_hash": ids.astype(np.uint64),
        "vector": pa.FixedSizeListArray.from_arrays(
            pa.array(vectors.reshape(-1)),
            type=get_schemas(RETRIEVER_DIM)[CHUNKS].field("vector").type,
        ),
    }


def make_words(ids: NDArray[np.int64], random: np.random.Generator) -> dict[str, Any]:
    """Random words, a token each.

    :param ids: Chunks.
    :param random: What they are drawn from.
    :returns: Columns.
    """
    shape = (len(ids), NUM_WORDS)
    tokens = random.integers(0, VOCABULARY, shape, dtype=np.int32)
    starts = (ids % CHUNKS_PER_DOCUMENT * CHUNK_CHARS).astype(np.int32)
    bounds = np.arange(NUM_WORDS + 1, dtype=np.int32)
    vectors = random.integers(0, 256, (2, *shape, WORD_DIM), dtype=np.uint8)
    scales = np.full(shape, 0.01, dtype=np.float32)
    return {
        "chunk_id": ids,
        "document_ordinal": ids // CHUNKS_PER_DOCUMENT,
        "start_vectors": to_binary(vectors[0].reshape(len(ids), -1)),
        "end_vectors": to_binary(vectors[1].reshape(len(ids), -1)),
        "start_scales": to_binary(scales),
        "end_scales": to_binary(scales),
        "word_flags": to_binary(np.full(shape, 3, dtype=np.uint8)),
        "word_hashes": to_binary(tokens.astype(np.uint64)),
        "word_chars": to_binary(starts[:, None] + bounds * np.int32(WORD_CHARS)),
        "word_tokens": to_binary(np.broadcast_to(bounds, (len(ids), NUM_WORDS + 1))),
        "token_ids": to_binary(tokens),
    }


def to_binary(rows: np.ndarray) -> pa.Array:
    """Byte strings of rows of equal length.

    :param rows: A row for each.
    :returns: A column.
    """
    data = np.ascontiguousarray(rows)
    offsets = np.arange(len(data) + 1, dtype=np.int64) * (data.nbytes // len(data))
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(data), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )


def make_index(place: CorpusPaths, *, num_chunks: int, params: IndexParams) -> dict[str, Any]:
    """Write an index.

    :param place: Where.
    :param num_chunks: Number of chunks.
    :param params: How it is searched.
    :returns: Seconds by part, sizes, and what search finds.
    """
    folder = place.index / f"{num_chunks:016x}"
    seconds: dict[str, float] = {}

    def timed(name: str, work: Callable[[], Any]) -> Any:  # noqa: ANN401
        began = time.perf_counter()
        result = work()
        seconds[name] = time.perf_counter() - began
        say(f"{num_chunks:,} chunks: {name} {seconds[name]:.0f} s")
        return result

    store = StoreWriter(folder, schemas=get_schemas(RETRIEVER_DIM))

    def write() -> None:
        for batches in iter_batches(num_chunks):
            for table, batch in batches.items():
                store.write(table, batch)

    timed("write", write)
    timed("compact", store.compact)
    manifest = make_manifest(place.root.name, folder.name, num_chunks)
    part = IndexPart(folder, manifest)

    def derive() -> None:
        save_blocks(folder, iter_blocks(part.iter_rows(WORDS, columns=COLUMNS)))
        hashes = np.arange(VOCABULARY, dtype=np.uint64)
        counts = np.zeros(VOCABULARY, dtype=np.int64)
        counts[0] = manifest.num_words
        save_counts(folder, WordCounts(hashes, hashes, counts))

    timed("contexts", derive)
    search = timed(
        "search", lambda: build_search(part, retriever=ChunkRetriever(part), params=params)
    )
    files = {
        str(path.relative_to(folder)): FileEntry(path.stat().st_size, "")
        for path in folder.rglob("*")
        if path.is_file()
    }
    save_manifest(place.manifest, replace(manifest, search=search, files=files))
    return {
        "seconds": seconds,
        "bytes": {
            "all": get_folder_bytes(folder),
            "lists": get_folder_bytes(folder / f"{CHUNKS}.lance" / "_indices"),
        },
        "search": search.kind,
        "num_lists": search.num_lists,
        "num_probes": search.num_probes,
        f"recall_at_{search.recall_at}": search.recall,
    }


def make_manifest(corpus_id: str, folder: str, num_chunks: int) -> Manifest:
    """What the index states about itself; its rows have no digest."""
    num_documents = -(-num_chunks // CHUNKS_PER_DOCUMENT)
    return Manifest(
        format_version=FORMAT_VERSION,
        corpus=corpus_id,
        digest=f"{num_chunks:064x}",
        folder=folder,
        documents_digest="0" * 64,
        model="0" * 64,
        numerics="",
        created_with="",
        built_at="",
        params={},
        documents=DocumentCounts(num_documents, num_documents, {}),
        num_chunks=num_chunks,
        num_encoded=num_chunks,
        num_words=num_chunks * NUM_WORDS,
        num_tokens=num_chunks * NUM_WORDS,
        skipped_words=0,
        vectors=VectorFormat("int8", WORD_DIM, 2.0 * (WORD_DIM + 4)),
        storage_cost=None,
        search=SearchQuality(FLAT, RETRIEVER_DIM, num_chunks, 0, 0, 0, 0.0),
        sizes={},
        files={},
        seconds={},
    )
