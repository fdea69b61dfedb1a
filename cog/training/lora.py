"""Low-rank updates: a network goes in, the same network with small trainable factors comes out."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from cog.errors import CheckpointError
from cog.model.weights import Weights


class LoraLinear(nn.Module):
    """A frozen linear layer with a trainable update: ``y = W x + scale * B A x``.

    Source: Hu et al. 2022, eq. 3. ``B`` begins at zero, so training begins at the base model.
    """

    def __init__(self, base: nn.Module, *, rank: int, scale: float, dropout: float) -> None:
        super().__init__()
        num_out, num_in = _layer_shape(base)
        self.base = base.requires_grad_(False)
        self.A = nn.Parameter(torch.empty(rank, num_in))
        self.B = nn.Parameter(torch.zeros(num_out, rank))
        nn.init.kaiming_uniform_(self.A, a=math.sqrt(5))
        self.scale = scale
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()

    def forward(self, inputs: Tensor) -> Tensor:
        """Apply the layer: ``(…, num_in)`` to ``(…, num_out)``."""
        base: Tensor = self.base(inputs)
        low = nn.functional.linear(nn.functional.linear(self.dropout(inputs), self.A), self.B)
        return torch.add(base, low.to(base.dtype), alpha=self.scale)


def add_lora(
    network: nn.Module, *, rank: int | dict[str, int], scale: float, dropout: float = 0.0
) -> None:
    """Freeze a network and put an update on its linear layers, in place.

    Ranks may be given by name of the layer, which others then lack.
    """
    network.requires_grad_(False)
    layers = dict(_linear_layers(network))
    ranks = rank if isinstance(rank, dict) else dict.fromkeys(layers, rank)
    for name, layer_rank in ranks.items():
        if name not in layers:
            raise CheckpointError(
                "the trained weights must fit their base model",
                found=f"no layer {name}",
            )
        parent, _, child = name.rpartition(".")
        wrapped = LoraLinear(layers[name], rank=layer_rank, scale=scale, dropout=dropout)
        setattr(network.get_submodule(parent), child, wrapped)


def lora_weights(network: nn.Module) -> Weights:
    """Take the factors out of a network: ``<layer>.A`` and ``<layer>.B`` by name."""
    return {
        f"{name}.{side}": getattr(module, side).detach()
        for name, module in network.named_modules()
        if isinstance(module, LoraLinear)
        for side in ("A", "B")
    }


@torch.no_grad()
def load_lora(network: nn.Module, weights: Weights) -> None:
    """Put factors into a network, as :func:`lora_weights` gives them."""
    for name, tensor in weights.items():
        layer, _, side = name.rpartition(".")
        parameter: Tensor = getattr(network.get_submodule(layer), side)
        if parameter.shape != tensor.shape:
            raise CheckpointError(
                f"{name} must have shape {tuple(parameter.shape)}",
                found=str(tuple(tensor.shape)),
            )
        parameter.copy_(tensor)


def _linear_layers(network: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    head = getattr(network, "lm_head", None)
    for name, module in network.named_modules():
        if isinstance(module, (nn.Linear, Conv1D)) and module is not head:
            yield name, module


def _layer_shape(layer: nn.Module) -> tuple[int, int]:
    weight = layer.weight
    assert isinstance(weight, Tensor)
    rows, columns = weight.shape
    return (columns, rows) if isinstance(layer, Conv1D) else (rows, columns)
