"""Rows of the tables: documents and encoded chunks go in, Arrow batches come out."""

from collections.abc import Iterable, Sequence
from hashlib import sha256

import numpy as np
import pyarrow as pa

from cog.index.building.encoding import EncodedChunk
from cog.index.chunking import hash_content, hash_words
from cog.records import Document


def make_document_rows(
    documents: Sequence[Document], *, first_ordinal: int, schema: pa.Schema
) -> pa.RecordBatch:
    """Rows of the documents table."""
    columns: dict[str, object] = {
        name: [getattr(document, name) for document in documents]
        for name in schema.names
        if name != "ordinal"
    }
    columns["ordinal"] = np.arange(first_ordinal, first_ordinal + len(documents), dtype=np.int64)
    return _make_batch(columns, schema)


def make_chunk_rows(
    encoded: Sequence[EncodedChunk], *, first_chunk_id: int, schema: pa.Schema
) -> pa.RecordBatch:
    """Rows of the chunks table."""
    chunks = [item.chunk for item in encoded]
    vectors = np.stack([item.vector for item in encoded])  # (num_chunks, retriever_dim)
    return _make_batch(
        {
            "chunk_id": np.arange(first_chunk_id, first_chunk_id + len(chunks), dtype=np.int64),
            "document_ordinal": [chunk.document_ordinal for chunk in chunks],
            "char_start": [int(chunk.word_chars[0]) for chunk in chunks],
            "char_end": [int(chunk.word_chars[-1]) for chunk in chunks],
            "num_words": [chunk.num_words for chunk in chunks],
            "num_tokens": [len(chunk.token_ids) for chunk in chunks],
            "content_hash": [hash_content(chunk.text, chunk.word_chars) for chunk in chunks],
            "vectors_hash": [hash_vectors(item) for item in encoded],
            "vector": pa.FixedSizeListArray.from_arrays(
                pa.array(vectors.reshape(-1), pa.float32()), type=schema.field("vector").type
            ),
        },
        schema,
    )


def make_word_rows(
    encoded: Sequence[EncodedChunk], *, first_chunk_id: int, schema: pa.Schema
) -> pa.RecordBatch:
    """Rows of the words table: one per chunk, every column the bytes of an array."""
    chunks = [item.chunk for item in encoded]
    return _make_batch(
        {
            "chunk_id": np.arange(first_chunk_id, first_chunk_id + len(chunks), dtype=np.int64),
            "document_ordinal": [chunk.document_ordinal for chunk in chunks],
            "start_vectors": _join(item.start.vectors for item in encoded),
            "end_vectors": _join(item.end.vectors for item in encoded),
            "start_scales": _join(item.start.scales for item in encoded),
            "end_scales": _join(item.end.scales for item in encoded),
            "word_flags": _join(item.word_flags for item in encoded),
            "word_hashes": _join(
                hash_words(chunk.text, chunk.word_chars - chunk.word_chars[0]) for chunk in chunks
            ),
            "word_chars": _join(chunk.word_chars for chunk in chunks),
            "word_tokens": _join(chunk.word_tokens for chunk in chunks),
            "token_ids": _join(chunk.token_ids for chunk in chunks),
        },
        schema,
    )


def hash_vectors(encoded: EncodedChunk) -> int:
    """Checksum of what encoding a chunk gave, as it is stored: 64 bits."""
    digest = sha256()  # three times as fast as blake2b where the processor has it
    for array in (
        encoded.start.vectors,
        encoded.start.scales,
        encoded.end.vectors,
        encoded.end.scales,
        encoded.word_flags,
        encoded.vector,
    ):
        digest.update(np.ascontiguousarray(array).data)
    return int.from_bytes(digest.digest()[:8], "little")


def _join(arrays: Iterable[np.ndarray]) -> pa.Array:
    # byte strings straight from the arrays' memory
    parts = [np.ascontiguousarray(array).view(np.uint8).reshape(-1) for array in arrays]
    offsets = np.cumsum([0, *map(len, parts)], dtype=np.int64)
    data = np.concatenate(parts) if parts else np.zeros(0, dtype=np.uint8)
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(parts), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )


def _make_batch(columns: dict[str, object], schema: pa.Schema) -> pa.RecordBatch:
    arrays = [
        column if isinstance(column, pa.Array) else pa.array(column, field.type)
        for field in schema
        for column in [columns[field.name]]
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
