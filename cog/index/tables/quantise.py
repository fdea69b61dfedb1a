"""Storing vectors in few bits: float32 goes in; int8, float16 or the bits of a code come out."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cog.index.records import VectorFormat
from cog.model.vector_code import VectorCode, VectorCodes, count_bytes

INT8 = "int8"
COMPACT = "compact"
LARGEST_INT8 = 127
LARGEST_FLOAT16 = float(np.finfo(np.float16).max)


@dataclass(frozen=True, slots=True)
class Layout:
    """How the bytes of a stored vector lie."""

    kind: "np.dtype[np.generic]"  # of its items
    width: int  # number of items
    scale_bytes: int  # bytes of its scale; 0 if it has none

    @property
    def bytes_per_word(self) -> float:
        """Bytes of a word's start and end vector with their scales."""
        return 2.0 * (self.width * self.kind.itemsize + self.scale_bytes)


def get_layout(vectors: VectorFormat) -> Layout:
    """The layout of an index's vectors."""
    if vectors.dtype == COMPACT:
        return Layout(np.dtype(np.uint8), int(vectors.bytes_per_word) // 2, 0)
    return make_layout(vectors.dtype, vectors.dim)


def make_layout(dtype: str, dim: int, *, codes: VectorCodes | None = None) -> Layout:
    """The layout of vectors of some width, stored as ``dtype``; ``codes`` if they are fitted."""
    if dtype == COMPACT:
        return Layout(np.dtype(np.uint8), codes.start.num_bytes if codes else count_bytes(dim), 0)
    return Layout(np.dtype(dtype), dim, np.dtype(np.float32).itemsize)


def get_vector_type(dtype: str) -> "np.dtype[np.floating[Any]]":
    """What a chunk's retriever vector is stored as, beside words of a dtype."""
    return np.dtype(np.float16 if dtype == COMPACT else np.float32)


@dataclass(frozen=True, slots=True)
class StoredVectors:
    """Vectors as they are stored: ``vectors * scales[:, None]`` is what they stand for.

    Of a code, ``vectors`` are its bits, and there are no scales.
    """

    vectors: NDArray[np.int8] | NDArray[np.float16] | NDArray[np.uint8]  # (num_vectors, width)
    scales: NDArray[np.float32]  # (num_vectors,)


def quantise(
    vectors: NDArray[np.float32], *, dtype: str, code: VectorCode | None = None
) -> StoredVectors:
    """Store vectors.

    int8: the scale is the largest magnitude over 127, values are rounded half to even; a zero
    vector has scale 0.
    float16: the scale is 1, or what brings the vector into range.
    compact: the bits of ``code``.

    All vectors must be finite. *Shape:* ``(num_vectors, dim)``
    """
    if code is not None:
        return StoredVectors(code.pack(code.quantise(vectors)), np.zeros(0, dtype=np.float32))
    largest = np.abs(vectors).max(axis=1, initial=0.0).astype(np.float32)
    if dtype == INT8:
        scales = largest / np.float32(LARGEST_INT8)
        divisors = np.where(scales > 0, scales, np.float32(1))
        rounded = np.rint(vectors / divisors[:, None])
        clipped = np.clip(rounded, -LARGEST_INT8, LARGEST_INT8)  # subnormal scales round badly
        return StoredVectors(clipped.astype(np.int8), scales)
    scales = np.maximum(largest / np.float32(LARGEST_FLOAT16), np.float32(1))
    return StoredVectors((vectors / scales[:, None]).astype(np.float16), scales)
