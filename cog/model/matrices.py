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
from cog.model.integers import has_int8_dot_products, multiply_rows, round_rows
from cog.records import AUTO, BFLOAT16, FLOAT32, INT8

INPUT_DIGITS = 2  # with one, inputs lose three times as much as weights do
NUM_EXACT = 256  # tokens whose logits are computed again in float32


class Matrix(nn.Module):
    """A linear layer; float32 goes in and comes out.

    :param weight: float32, bfloat16 or int8. *Shape:* ``(num_out, num_in)``
    :param bias: *Shape:* ``(num_out,)`` float32
    :param scales: What each row of an int8 weight is multiplied with. *Shape:* ``(num_out,)``
    """

    weight: Tensor
    bias: Tensor | None
    scales: Tensor | None

    def __init__(self, weight: Tensor, bias: Tensor | None, scales: Tensor | None) -> None:
        super().__init__()
        self.register_buffer("weight", weight)
        self.register_buffer("bias", bias)
        self.register_buffer("scales", scales)

    @classmethod
    def lower(cls, layer: nn.Linear | Conv1D, precision: str) -> "Matrix":
        """Keep a layer in fewer bits.

        :param layer: The layer, in float32.
        :param precision: ``bfloat16`` or ``int8``.
        :returns: The lighter layer.
        """
        weight = layer.weight.detach()
        if isinstance(layer, Conv1D):  # GPT-2 stores its matrices transposed
            weight = weight.T.contiguous()
        bias = None if layer.bias is None else cast(Tensor, layer.bias).detach()
        if precision == BFLOAT16:
            return cls(weight.bfloat16(), bias, None)
        rows, scales = round_rows(weight)
        return cls(rows, bias, scales)

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
                num_digits=INPUT_DIGITS,
            ).view(*states.shape[:-1], -1)
        return output if self.bias is None else output + self.bias


class Head(nn.Module):
    """A vocabulary's matrix in int8, whose best tokens are scored again in float32.

    The first pass reads a quarter of the bytes, and what it loses on the tokens that carry nearly
    all of the probability is made good by the second.

    :param head: The matrix, in float32; its weight is shared, not copied.
    """

    def __init__(self, head: nn.Linear) -> None:
        super().__init__()
        self.weight = head.weight  # (vocab_size, dim)
        self.bias = head.bias
        rows, scales = round_rows(head.weight.detach())
        self.register_buffer("rows", rows)
        self.register_buffer("scales", scales)

    def forward(self, states: Tensor) -> Tensor:
        """Score the vocabulary.

        :param states: *Shape:* ``(batch, dim)`` float32
        :returns: *Shape:* ``(batch, vocab_size)`` float32
        """
        rows, scales = self.get_buffer("rows"), self.get_buffer("scales")
        logits = multiply_rows(states, rows, scales, num_digits=INPUT_DIGITS)
        best = logits.topk(min(NUM_EXACT, len(rows)), dim=1, sorted=False).indices
        exact = torch.bmm(self.weight[best], states.unsqueeze(2)).squeeze(2)  # (batch, NUM_EXACT)
        logits.scatter_(1, best, exact)
        return logits if self.bias is None else logits + self.bias


def choose_precision(wanted: str, device: torch.device) -> str:
    """Say in which precision a prefix encoder is loaded.

    ``auto`` is bfloat16 where the device multiplies it fast, and float32 elsewhere; never int8,
    which is no faster than bfloat16 where both are fast, and moves the distribution of the next
    token by more than the hundredth that would be nothing.

    :param wanted: ``auto``, ``float32``, ``bfloat16`` or ``int8``.
    :param device: Where it will run.
    :returns: One of the last three.
    :raises CheckpointError: If the device cannot do what is wanted.
    """
    is_gpu = device.type == "cuda"
    if wanted == AUTO:
        return BFLOAT16 if is_bfloat16_fast(device) else FLOAT32
    if wanted == INT8 and is_gpu:
        raise CheckpointError(
            "--precision int8 needs a CPU", found=str(device), run="use --precision bfloat16"
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


def lower_head(head: nn.Linear, precision: str, device: torch.device) -> nn.Module:
    """Read the vocabulary's matrix in fewer bits where that is faster.

    :param head: The matrix, in float32.
    :param precision: As of the network.
    :param device: Where it will run.
    :returns: The layer: the same one in float32, on a GPU, and without fast products of int8.
    """
    is_lighter = precision != FLOAT32 and device.type == "cpu" and has_int8_dot_products()
    return Head(head) if is_lighter else head
