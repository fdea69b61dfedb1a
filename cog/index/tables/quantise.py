"""Storing vectors in few bits: float32 goes in, int8 with scales (or float16) comes out."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

INT8 = "int8"
LARGEST_INT8 = 127
LARGEST_FLOAT16 = float(np.finfo(np.float16).max)


@dataclass(frozen=True, slots=True)
class StoredVectors:
    """Vectors as they are stored: ``vectors * scales[:, None]`` is what they stand for."""

    vectors: NDArray[np.int8] | NDArray[np.float16]  # (num_vectors, dim) int8 or float16
    scales: NDArray[np.float32]  # (num_vectors,)


def quantise(vectors: NDArray[np.float32], *, dtype: str) -> StoredVectors:
    """Store vectors.

    int8: the scale is the largest magnitude over 127, values are rounded half to even; a zero
    vector has scale 0.
    float16: the scale is 1, or what brings the vector into range.

    :param vectors: All of them finite. *Shape:* ``(num_vectors, dim)``
    :param dtype: ``int8`` or ``float16``.
    :returns: What is stored.
    """
    largest = np.abs(vectors).max(axis=1, initial=0.0).astype(np.float32)
    if dtype == INT8:
        scales = largest / np.float32(LARGEST_INT8)
        divisors = np.where(scales > 0, scales, np.float32(1))
        rounded = np.rint(vectors / divisors[:, None])
        clipped = np.clip(rounded, -LARGEST_INT8, LARGEST_INT8)  # subnormal scales round badly
        return StoredVectors(clipped.astype(np.int8), scales)
    scales = np.maximum(largest / np.float32(LARGEST_FLOAT16), np.float32(1))
    return StoredVectors((vectors / scales[:, None]).astype(np.float16), scales)
