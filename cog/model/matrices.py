"""Linear layers in fewer bits: a network in float32 goes in, one with lighter matrices comes out.

Only matrices are kept, and multiplied, in fewer bits; what flows between them, norms, rotations,
attention and every buffer stay in float32.
"""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers.pytorch_utils import Conv1D

from cog.errors import CheckpointError
from cog.model.integers import MAX_DIGITS, multiply_rows
from cog.records import AUTO, BFLOAT16, FLOAT32, INT8

INPUT_DIGITS = 2  # with one, inputs lose three times as much as weights do


class Matrix(nn.Module):
    """A linear layer; float32 goes in and comes out.

    :param weight: float32, bfloat16 or int8. *Shape:* ``(num_out, num_in)``
    :param bias: *Shape:* ``(num_out,)`` float32
    :param scales: What each row of an int8 weight is multiplied with. *Shape:* ``(num_out,)``
    :param num_digits: Number of int8 vectors that an input is written as where the weight is int8.
    """

    weight: Tensor
    bias: Tensor | None
    scales: Tensor | None

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor | None,
        scales: Tensor | None,
        *,
        num_digits: int = INPUT_DIGITS,
    ) -> None:
        super().__init__()
        self.register_buffer("weight", weight)
        self.register_buffer("bias", bias)
        self.register_buffer("scales", scales)
        self._num_digits = num_digits

    @classmethod
    def lower(
        cls, layer: nn.Linear | Conv1D, precision: str, *, num_digits: int = INPUT_DIGITS
    ) -> "Matrix":
        """Keep a layer in fewer bits.

        :param layer: The layer, in float32.
        :param precision: ``bfloat16`` or ``int8``.
        :param num_digits: Number of int8 vectors that an input is written as.
        :returns: The lighter layer.
        """
        weight = layer.weight.detach()
        if isinstance(layer, Conv1D):  # GPT-2 stores its matrices transposed
            weight = weight.T.contiguous()
        bias = None if layer.bias is None else cast(Tensor, layer.bias).detach()
        if precision == BFLOAT16:
            return cls(weight.bfloat16(), bias, None)
        scales = (weight.abs().amax(dim=1) / 127.0).clamp_min(torch.finfo(torch.float32).tiny)
        rows = torch.round(weight / scales.unsqueeze(1)).to(torch.int8)
        return cls(rows, bias, scales, num_digits=num_digits)

    @classmethod
    def join(cls, layers: "Sequence[nn.Linear | Matrix]") -> "Matrix":
        """Make one layer of several with the same input.

        :param layers: Layers of one precision. Their weights become views of the joined one, so
            that nothing is held twice and they still give the same.
        :returns: The layer whose output is theirs side by side.
        """
        weight = layers[0].weight.detach()
        if len(layers) > 1:
            weight = torch.cat([layer.weight.detach() for layer in layers])
            begin = 0
            for layer in layers:
                end = begin + len(layer.weight)
                layer.weight.data = weight[begin:end]
                begin = end
        biases = [layer.bias.detach() for layer in layers if layer.bias is not None]
        scales = [
            layer.scales
            for layer in layers
            if isinstance(layer, Matrix) and layer.scales is not None
        ]
        return cls(
            weight,
            torch.cat(biases) if biases else None,
            torch.cat(scales) if scales else None,
        )

    def forward(self, states: Tensor) -> Tensor:
        """Multiply.

        :param states: *Shape:* ``(..., num_in)`` float32
        :returns: *Shape:* ``(..., num_out)`` float32
        """
        if self.scales is None:
            output = functional.linear(states.to(self.weight.dtype), self.weight).float()
        else:
            output = multiply_rows(
                states.reshape(-1, states.shape[-1]),
                self.weight,
                self.scales,
                num_digits=self._num_digits,
            ).view(*states.shape[:-1], -1)
        return output if self.bias is None else output + self.bias


def choose_precision(wanted: str, device: torch.device) -> str:
    """Say in which precision a prefix encoder is loaded.

    ``auto`` is bfloat16 on a GPU that has it and float32 elsewhere: on no processor were the
    lighter ones measured to be faster yet, and int8 moves the distribution of the next token by
    more than the hundredth that would be nothing.

    :param wanted: ``auto``, ``float32``, ``bfloat16`` or ``int8``.
    :param device: Where it will run.
    :returns: One of the first three.
    :raises CheckpointError: If the device cannot do what is wanted.
    """
    is_gpu = device.type == "cuda"
    if wanted == AUTO:
        return BFLOAT16 if is_gpu and _has_bfloat16() else FLOAT32
    if wanted == INT8 and is_gpu:
        raise CheckpointError(
            "--precision int8 needs a CPU", found=str(device), run="use --precision bfloat16"
        )
    if wanted == BFLOAT16 and is_gpu and not _has_bfloat16():
        raise CheckpointError(
            "--precision bfloat16 needs a GPU that has it",
            found=torch.cuda.get_device_name(device),
            run="use --precision float32",
        )
    return wanted


def _has_bfloat16() -> bool:
    return bool(torch.cuda.is_bf16_supported(including_emulation=False))


def lower_precision(model: nn.Module, precision: str) -> None:
    """Keep the linear layers of a network in fewer bits, in place.

    :param model: The network, in float32.
    :param precision: ``float32`` leaves it as it is, ``bfloat16`` or ``int8``.
    """
    if precision == FLOAT32:
        return
    for module in list(model.modules()):
        for name, layer in module.named_children():
            if isinstance(layer, nn.Linear | Conv1D):
                setattr(module, name, Matrix.lower(layer, precision))


def lower_head(head: nn.Linear, precision: str) -> nn.Module:
    """Keep the vocabulary's matrix in fewer bits.

    Choices hang on differences of logits much smaller than the logits, so states are never rounded
    to fewer bits than float32 holds.

    :param head: The matrix, in float32.
    :param precision: As of the network; only ``int8`` makes it lighter.
    :returns: The layer.
    """
    return Matrix.lower(head, INT8, num_digits=MAX_DIGITS) if precision == INT8 else head
