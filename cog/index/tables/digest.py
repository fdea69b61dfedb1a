"""The identity of an index: rows in canonical order go in, one digest comes out."""

import hashlib
import json
from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cog.index.records import FORMAT_VERSION, VectorFormat


class RowDigest:
    """Digest of the rows of several tables, whatever batches they come in.

    Every column has its own sha256 over its values, and one over the lengths of values that vary.
    The bytes of files are never part of it: those of two equal LanceDB builds differ. The header is
    what else makes the index what it is, JSON-ready.
    """

    def __init__(self, header: Mapping[str, object]) -> None:
        self._header = json.dumps(header, sort_keys=True)
        self._columns: dict[str, hashlib._Hash] = {}

    def update(self, table: str, batch: pa.RecordBatch) -> None:
        """Add rows that follow those added before; null values are refused by ``ValueError``."""
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if column.null_count:
                raise ValueError(f"{table}.{name} holds null values")
            for part, values in _get_parts(column):
                key = f"{table}.{name}.{part}"
                self._columns.setdefault(key, hashlib.sha256()).update(values.data)

    def hexdigest(self) -> str:
        """The digest of everything added so far."""
        total = hashlib.sha256(self._header.encode())
        for key in sorted(self._columns):
            total.update(f"\n{key} {self._columns[key].hexdigest()}".encode())
        return total.hexdigest()


def make_index_digest(
    *, documents_digest: str, model_fingerprint: str, vectors: VectorFormat, retriever_dim: int
) -> RowDigest:
    """Begin the digest of an index: one without rows."""
    codes = {"codes": vectors.codes} if vectors.codes else {}
    return RowDigest(
        codes
        | {
            "format": FORMAT_VERSION,
            "documents": documents_digest,
            "model": model_fingerprint,
            "dtype": vectors.dtype,
            "dim": vectors.dim,
            "retriever_dim": retriever_dim,
        }
    )


def _get_parts(column: pa.Array) -> list[tuple[str, NDArray[np.uint8]]]:
    if pa.types.is_fixed_size_list(column.type):
        return [("values", _get_fixed(column.flatten()))]
    if pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type):
        offsets, values = get_binary_buffers(column)
        lengths = np.diff(offsets).astype("<i8")
        return [("lengths", lengths.view(np.uint8)), ("values", values)]
    return [("values", _get_fixed(column))]


def _get_fixed(column: pa.Array) -> NDArray[np.uint8]:
    values = np.ascontiguousarray(column.to_numpy(zero_copy_only=True))
    return values.view(np.uint8)


def get_hash_heads(batches: Iterable[pa.RecordBatch]) -> NDArray[np.uint64]:
    """The first 8 of the 16 bytes of content hashes, the only column. *Shape:* ``(num_rows,)``."""
    heads = [np.zeros(0, dtype="<u8")]
    for batch in batches:
        _, values = get_binary_buffers(batch.column(0))
        heads.append(values.reshape(batch.num_rows, -1)[:, :8].copy().view("<u8")[:, 0])
    return np.concatenate(heads)


def get_binary_buffers(column: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """The memory of a large_binary or large_string column without nulls, without a copy.

    Gives offsets into the bytes, *Shape:* ``(num_rows + 1,)`` from 0 on, and the bytes.
    """
    _, offset_buffer, data = column.buffers()
    offsets = np.frombuffer(offset_buffer, dtype=np.int64)
    offsets = offsets[column.offset : column.offset + len(column) + 1]
    if data is None or len(column) == 0:
        return np.zeros(len(column) + 1, dtype=np.int64), np.zeros(0, dtype=np.uint8)
    values = np.frombuffer(data, dtype=np.uint8)[offsets[0] : offsets[-1]]
    return offsets - offsets[0], values
