"""The matrices of the prefix encoder: laid out as a CPU reads them fastest, or in fewer bits.

Only matrices are kept, and multiplied, in fewer bits; what flows between them, norms, rotations,
attention and every buffer stay in float32.
"""

import platform
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from cog.errors import CheckpointError
from cog.model.integers import is_int8_exact, multiply_rows, round_rows
from cog.records import AUTO, BFLOAT16, FLOAT32, INT8

CPU = torch.device("cpu")
INPUT_DIGITS = 2  # with one, inputs lose three times as much as weights do


class Matrix(nn.Module):
    """A linear layer; float32 goes in and comes out."""

    weight: Tensor  # (num_out, num_in) float32, bfloat16 or int8
    bias: Tensor | None  # (num_out,) float32
    scales: Tensor | None  # (num_out,) what each row of an int8 weight is multiplied with

    def __init__(self, weight: Tensor, bias: Tensor | None, scales: Tensor | None) -> None:
        super().__init__()
        self.register_buffer("weight", weight)
        self.register_buffer("bias", bias)
        self.register_buffer("scales", scales)
        self._packed: Tensor | None = None

    @classmethod
    def read(cls, weight: Tensor, bias: Tensor | None, precision: str = FLOAT32) -> "Matrix":
        """Make one of a float32 weight, which only the precision ``float32`` shares."""
        if precision == FLOAT32:
            return cls(weight, bias, None)
        if precision == BFLOAT16:
            return cls(weight.bfloat16(), bias, None)
        rows, scales = round_rows(weight)
        return cls(rows, bias, scales)

    @classmethod
    def join(cls, matrices: "Sequence[Matrix]") -> "Matrix":
        """Make one layer of several with the same input and precision, none of them packed.

        Its output is theirs side by side.
        """
        if len(matrices) == 1:
            return matrices[0]
        biases = [each.bias for each in matrices if each.bias is not None]
        scales = [each.scales for each in matrices if each.scales is not None]
        return cls(
            torch.cat([each.weight for each in matrices]),
            torch.cat(biases) if biases else None,
            torch.cat(scales) if scales else None,
        )

    def pack(self) -> "Matrix":
        """Lay the weight out in blocks, as the CPU's products read it, where they can.

        A pass over a few tokens then takes a third to two thirds of the time: the library lays a
        plain weight out at every product. The plain weight is dropped. Gives this layer.
        """
        if can_pack(self.weight):
            reorder = torch.ops.mkldnn._reorder_linear_weight
            self._packed = reorder(self.weight, None)
            self.weight = self.weight.new_empty(0)
        return self

    def forward(self, states: Tensor) -> Tensor:
        """Multiply: ``(..., num_in)`` to ``(..., num_out)``."""
        output: Tensor
        if self._packed is not None:
            multiply = torch.ops.mkldnn._linear_pointwise
            light = states.to(self._packed.dtype)
            output = multiply(light, self._packed, None, "none", [], "").float()
        elif self.scales is None:
            output = functional.linear(states.to(self.weight.dtype), self.weight).float()
        else:
            output = multiply_rows(
                states.reshape(-1, states.shape[-1]),
                self.weight,
                self.scales,
                num_digits=INPUT_DIGITS,
            ).view(*states.shape[:-1], -1)
        return output if self.bias is None else output + self.bias


def can_pack(weight: Tensor) -> bool:
    """Whether a CPU's products with a weight are faster once it is laid out in blocks."""
    if weight.device.type != "cpu" or platform.machine().lower() not in ("x86_64", "amd64"):
        return False
    is_fast = weight.dtype == torch.float32 or (
        weight.dtype == torch.bfloat16 and is_bfloat16_fast(CPU)
    )
    return is_fast and bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]


def choose_precision(wanted: str, device: torch.device) -> str:
    """Say in which precision a prefix encoder is loaded.

    ``auto`` is bfloat16 where the device multiplies it fast, and float32 elsewhere; never int8,
    which is no faster than bfloat16 where both are fast, and moves the distribution of the next
    token by more than the hundredth that would be nothing. If the device cannot do what is wanted,
    it is a ``CheckpointError``.
    """
    is_gpu = device.type == "cuda"
    if wanted == AUTO:
        return BFLOAT16 if is_bfloat16_fast(device) else FLOAT32
    if wanted == INT8 and is_gpu:
        raise CheckpointError(
            "--precision int8 needs a CPU", found=str(device), run="use --precision bfloat16"
        )
    if wanted == INT8 and not is_int8_exact():
        raise CheckpointError(
            "--precision int8 needs a CPU that multiplies it exactly",
            found="one without VNNI or AMX",
            run="use --precision float32",
        )
    if wanted == BFLOAT16 and is_gpu and not is_bfloat16_fast(device):
        raise CheckpointError(
            "--precision bfloat16 needs a GPU that has it",
            found=torch.cuda.get_device_name(device),
            run="use --precision float32",
        )
    return wanted


def is_bfloat16_fast(device: torch.device) -> bool:
    """Whether a device multiplies bfloat16 faster than float32: a CPU only with instructions."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    capabilities = torch.cpu.get_capabilities()
    return any(capabilities.get(name) for name in ("avx512_bf16", "amx_bf16"))
