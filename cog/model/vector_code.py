"""Few bits for what queries can tell apart: vectors go in, packed bits and their meaning come out.

The error of a score is ``q · e``, so what an error costs is its length under the queries' second
moment ``C_q``, not its length. A code turns vectors into the space where the two are one
(``A = C_q^(1/2)``), rotates them to their principal axes there, and gives each axis as many bits as
pay (transform coding with reverse water-filling; Cover and Thomas 2006, section 10.3.3). Most axes
get none: queries of a trained model see few of them.

Stored is ``k = floor((v - mean) @ encode)``, cut to the bits of its axis; it stands for
``mean + (k + 1/2) @ decode``. So scores are products of small integers with a query that was folded
once: ``q · v = (q @ decode.T) · k + q · (mean + decode summed / 2)``.
"""

import hashlib
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from cog.atomic import replacing
from cog.errors import CheckpointError
from cog.model.config import CONFIG_FILE, advise_on_damage

VECTOR_CODES = "vector_codes.safetensors"  # in a model's folder, and in an index's
BYTES_PER_VECTOR = 75
MAX_BITS = 8
RIDGE = 1e-3  # of the mean of C_q's diagonal, for axes that the sample of queries never looks at
STEP_RANGE = np.linspace(0.8, 6.5, 24)  # half the quantiser's range, in standard deviations
MAX_FIT_VALUES = 4096  # values of an axis that its step is fitted on


@dataclass(frozen=True, slots=True, eq=False)
class VectorCode:
    """How start vectors, or end vectors, become bits."""

    mean: NDArray[np.float32]  # (dim,)
    # (dim, num_axes) rotation to the axes that have bits, in units of their steps
    encode: NDArray[np.float32]
    decode: NDArray[np.float32]  # (num_axes, dim) what a step along an axis is
    num_bits: NDArray[np.uint8]  # (num_axes,) bits of each, falling

    @property
    def num_bytes(self) -> int:
        """Bytes of a packed vector."""
        return -(-int(self.num_bits.sum()) // 8)

    @property
    def num_axes(self) -> int:
        """Integers of an unpacked vector."""
        return len(self.num_bits)

    @property
    def offset(self) -> NDArray[np.float32]:
        """What ``k = 0`` stands for: the middle of its step. *Shape:* ``(dim,)``."""
        middle: NDArray[np.float32] = self.mean + self.decode.sum(axis=0) / np.float32(2)
        return middle

    def quantise(self, vectors: NDArray[np.float32]) -> NDArray[np.int8]:
        """Round vectors to integers; one that is not finite is a ``ValueError``.

        *Shape:* ``(num_vectors, dim)`` to ``(num_vectors, num_axes)``
        """
        if not np.isfinite(vectors).all():
            raise ValueError("vectors must be finite")
        half = self._halves()
        steps = np.floor((vectors - self.mean) @ self.encode)
        return np.clip(steps, -half, half - 1).astype(np.int8)

    def pack(self, integers: NDArray[np.int8]) -> NDArray[np.uint8]:
        """Lay integers out as bits: the highest bit of every axis, then the next of those with two.

        Axes are in the order of their bits, so each plane is a run of leading axes, and unpacking
        needs no loop over axes. *Shape:* ``(num_vectors, num_axes)`` to ``(num_vectors,
        num_bytes)``
        """
        shifted = (integers + self._halves()).astype(np.uint8)
        planes = [
            shifted[:, :count] >> (self.num_bits[:count] - 1 - plane) & 1
            for plane, count in enumerate(self._planes())
        ]
        return np.packbits(np.concatenate(planes, axis=1), axis=1)

    def unpack(self, packed: NDArray[np.uint8]) -> NDArray[np.int8]:
        """Read integers back from their bits. *Shape:* ``(num_vectors, num_axes)``."""
        bits = np.unpackbits(packed, axis=1)
        shifted = np.zeros((len(packed), self.num_axes), dtype=np.uint8)
        first = 0
        for count in self._planes():
            leading = shifted[:, :count]
            leading <<= 1
            leading |= bits[:, first : first + count]
            first += count
        shifted -= self._halves().astype(np.uint8)  # wraps around, as two's complement does
        return shifted.view(np.int8)

    def _planes(self) -> list[int]:
        # number of axes that have a first bit, a second, ...
        return [int((self.num_bits > plane).sum()) for plane in range(int(self.num_bits.max()))]

    def _halves(self) -> NDArray[np.int16]:
        return (1 << (self.num_bits.astype(np.int16) - 1)).astype(np.int16)


@dataclass(frozen=True, slots=True, eq=False)
class VectorCodes:
    """The codes of both vectors of a word."""

    start: VectorCode
    end: VectorCode

    def digest(self) -> str:
        """What tells two codes apart: 16 hexadecimal digits."""
        total = hashlib.sha256()
        for array in self._arrays().values():
            total.update(np.ascontiguousarray(array).data)
        return total.hexdigest()[:16]

    def save(self, folder: Path) -> None:
        """Write them to a folder, as a whole."""
        with replacing(folder / VECTOR_CODES) as path:
            save_file(self._arrays(), path)

    def _arrays(self) -> dict[str, NDArray[np.generic]]:
        return {
            f"{side}.{each.name}": getattr(getattr(self, side), each.name)
            for side in ("start", "end")
            for each in fields(VectorCode)
        }


def load_codes(folder: Path) -> VectorCodes:
    """Read the codes of a folder; ``CheckpointError`` if it has none, or they are damaged."""
    path = folder / VECTOR_CODES
    try:
        arrays = load_file(path)
        start, end = (
            VectorCode(**{each.name: arrays[f"{side}.{each.name}"] for each in fields(VectorCode)})
            for side in ("start", "end")
        )
    except (OSError, SafetensorError, KeyError) as error:
        is_model = (folder / CONFIG_FILE).is_file()
        raise CheckpointError(
            f"{folder.name}/{path.name} must hold the codes of vectors",
            found=str(error),
            run=f"{advise_on_damage(path)}, or rm {path}: a build fits others"
            if is_model
            else "cog index build --force of the corpus",
        ) from error
    return VectorCodes(start, end)


def count_bytes(dim: int) -> int:
    """Bytes of a packed vector, as a code is fitted for vectors of some width."""
    return min(BYTES_PER_VECTOR, -(-MAX_BITS * dim // 8))


def fit_code(
    vectors: NDArray[np.float32], queries: NDArray[np.float32], *, num_bytes: int = BYTES_PER_VECTOR
) -> VectorCode:
    """Fit a code to a sample of vectors, and of the queries that they will be scored with.

    It has fewer bytes where more bits than ``MAX_BITS`` an axis would be needed. What is no finite
    number is a ``CheckpointError``. *Shape:* ``(num_vectors, dim)`` and ``(num_queries, dim)``, one
    of each at least
    """
    if not (np.isfinite(vectors).all() and np.isfinite(queries).all()):
        raise CheckpointError(
            "vectors and queries that a code is fitted to must be finite",
            found="a value that is not",
            run="check the model's weights",
        )
    dim = vectors.shape[1]
    seen = queries.T.astype(np.float64) @ queries / len(queries)  # (dim, dim)
    seen += RIDGE * (np.trace(seen) / dim or 1.0) * np.eye(dim)
    weights, axes = np.linalg.eigh(seen)
    warp, unwarp = (axes * np.sqrt(weights)) @ axes.T, (axes / np.sqrt(weights)) @ axes.T
    mean = vectors.mean(axis=0, dtype=np.float64)
    warped = (vectors - mean) @ warp
    _, rotation = np.linalg.eigh(warped.T @ warped)
    rotation = rotation[:, ::-1]
    values = (warped @ rotation)[:: max(1, len(vectors) // MAX_FIT_VALUES)]
    steps, errors = _fit_steps(values)
    num_bits = _share_bits(errors, total=min(8 * num_bytes, MAX_BITS * dim))
    order = np.argsort(-num_bits, kind="stable")[: int((num_bits > 0).sum())]
    chosen = steps[num_bits[order], order]  # (num_axes,)
    return VectorCode(
        mean=mean.astype(np.float32),
        encode=np.ascontiguousarray(warp @ rotation[:, order] / chosen, dtype=np.float32),
        decode=np.ascontiguousarray((unwarp @ rotation[:, order] * chosen).T, dtype=np.float32),
        num_bits=num_bits[order].astype(np.uint8),
    )


def _fit_steps(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    # by bits and axis, the step of the best uniform quantiser and its mean squared error
    steps = np.ones((MAX_BITS + 1, values.shape[1]))
    errors = np.full(steps.shape, np.inf)
    errors[0] = (values**2).mean(axis=0)
    spread = np.sqrt(errors[0]) + 1e-30  # an axis may be empty
    for bits in range(1, MAX_BITS + 1):
        half = 1 << (bits - 1)
        for reach in STEP_RANGE:
            step = reach * spread / half
            rounded = np.clip(np.floor(values / step), -half, half - 1) + 0.5
            error = ((values - rounded * step) ** 2).mean(axis=0)
            is_better = error < errors[bits]
            steps[bits, is_better], errors[bits, is_better] = step[is_better], error[is_better]
    return steps, errors


def _share_bits(errors: NDArray[np.float64], *, total: int) -> NDArray[np.int64]:
    # bit by bit to the axis whose error falls most
    num_bits = np.zeros(errors.shape[1], dtype=np.int64)
    gains = errors[0] - errors[1]
    for _ in range(total):
        axis = int(np.argmax(gains))
        num_bits[axis] += 1
        bits = num_bits[axis]
        gains[axis] = errors[bits, axis] - errors[bits + 1, axis] if bits < MAX_BITS else -np.inf
    return num_bits
