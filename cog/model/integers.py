"""Products of int8: float vectors and int8 rows with scales go in, float products come out.

Products of int8 vectors are exact in int32, so all that is lost is what the digits leave out.
"""

from functools import cache

import torch
from torch import Tensor

MAX_DIGITS = 3  # int8 digits of a vector: 7 + 8 + 8 bits, as many as float32 holds
STEP = 254.0  # a digit's unit over the next one's


def has_int8_dot_products() -> bool:
    """Whether this CPU multiplies int8 vectors exactly and fast (VNNI or AMX)."""
    capabilities = torch.cpu.get_capabilities()
    has_any = any(capabilities.get(name) for name in ("avx512_vnni", "avx_vnni", "amx_int8"))
    return has_any and is_int8_exact()


@cache
def is_int8_exact() -> bool:
    """Whether the library multiplies int8 vectors exactly on this CPU.

    Without VNNI or AMX, or where its instructions are limited by ``ONEDNN_MAX_CPU_ISA``, its
    kernels saturate in int16 on x86.
    """
    largest = torch.full((16, 64), 127, dtype=torch.int8)
    return bool((torch._int_mm(largest, largest.T) == 64 * 127 * 127).all())


def round_rows(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Keep a float32 matrix as int8 rows, *shape* ``(num_rows, dim)``, with a scale each."""
    scales = (matrix.abs().amax(dim=1) / 127.0).clamp_min(torch.finfo(torch.float32).tiny)
    return torch.round(matrix / scales.unsqueeze(1)).to(torch.int8), scales


def split_digits(vectors: Tensor, *, num_digits: int = MAX_DIGITS) -> tuple[Tensor, Tensor]:
    """Write float vectors as sums of int8 vectors: ``vector = sum(scale_k * digit_k)``.

    One digit holds 8 bits, three what float32 holds. *Shape:* ``(num_vectors, dim)`` to
    ``(num_digits, num_vectors, dim)`` and scales ``(num_digits, num_vectors)``
    """
    scale = (vectors.abs().amax(dim=1) / 127.0).clamp_min(torch.finfo(torch.float32).tiny)
    rest = vectors
    digits, scales = [], []
    for _ in range(num_digits):
        digit = torch.round(rest / scale.unsqueeze(1))  # within [-127, 127]
        rest = rest - digit * scale.unsqueeze(1)
        digits.append(digit.to(torch.int8))
        scales.append(scale)
        scale = scale / STEP
    return torch.stack(digits), torch.stack(scales)


def multiply_rows(
    vectors: Tensor, rows: Tensor, row_scales: Tensor, *, num_digits: int = MAX_DIGITS
) -> Tensor:
    """Multiply float vectors with all rows of an int8 matrix.

    *Shape:* ``(num_vectors, dim)``, ``(num_rows, dim)`` and ``(num_rows,)`` to ``(num_vectors,
    num_rows)``
    """
    digits, scales = split_digits(vectors, num_digits=num_digits)
    _, num_vectors, dim = digits.shape
    products = torch._int_mm(digits.transpose(0, 1).reshape(-1, dim), rows.T)  # int32
    parts = products.view(num_vectors, num_digits, -1).float()
    scores = torch.bmm(scales.T.unsqueeze(1), parts).squeeze(1)  # (num_vectors, num_rows)
    return scores.mul_(row_scales)
