"""Trained weights.

A model folder's safetensors go in; merged layers and named parts come out.
"""

from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from cog.errors import CheckpointError
from cog.model.config import ModelConfig

Weights = dict[str, Tensor]


def load_weights(folder: Path, config: ModelConfig) -> Weights:
    """Read every tensor of a model folder.

    Gives tensors by name, as float32. Raises ``CheckpointError`` if a file is missing or is no
    safetensors file.
    """
    weights: Weights = {}
    for name in config.weights:
        try:
            with safe_open(folder / name, framework="pt") as file:
                for key in file.keys():  # noqa: SIM118 - safe_open is no mapping
                    weights[key] = file.get_tensor(key).float()
        except (OSError, SafetensorError) as error:
            raise CheckpointError(
                f"{name} must be a safetensors file",
                found=str(error),
                run=f"git checkout HEAD {folder.name}",
                about=name,
            ) from error
    return weights


def select_weights(weights: Weights, prefix: str) -> Weights:
    """Take the tensors of one part.

    :param weights: Tensors by name.
    :param prefix: The part's name with its dot, such as ``bert.``.
    :returns: Its tensors, without the prefix in their names.
    """
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in weights.items()
        if name.startswith(prefix)
    }


@torch.no_grad()
def merge_lora(module: nn.Module, weights: Weights, *, scale: float) -> None:
    """Add low-rank updates to linear layers in place: ``W + scale * B A`` (Hu et al. 2022, eq. 3).

    :param module: The network that holds the layers.
    :param weights: Pairs ``<layer>.A`` of *Shape:* ``(rank, in)`` and ``<layer>.B`` of *Shape:*
        ``(out, rank)``.
    :param scale: Factor of the update.
    :raises CheckpointError: If a pair is incomplete or its layer is missing or of another shape.
    """
    for name in weights:
        layer_name, _, side = name.rpartition(".")
        if side != "A" or f"{layer_name}.B" not in weights:
            if side == "B" and f"{layer_name}.A" in weights:
                continue
            raise CheckpointError(
                "low-rank weights must come in pairs A and B", found=name, about=name
            )
        update = scale * (weights[f"{layer_name}.B"] @ weights[name])  # (out, in)
        try:
            layer = module.get_submodule(layer_name)
        except AttributeError:
            raise CheckpointError(
                "the trained weights must fit their base model",
                found=f"no layer {layer_name}",
                about=name,
            ) from None
        if isinstance(layer, Conv1D):  # GPT-2 stores its matrices transposed
            update = update.T
        if not isinstance(layer.weight, Tensor) or layer.weight.shape != update.shape:
            raise CheckpointError(
                f"the update of {layer_name} must fit it",
                found=str(tuple(update.shape)),
                about=name,
            )
        layer.weight.add_(update)


def split_lora(weights: Weights) -> tuple[Weights, Weights]:
    """Tell low-rank factors from whole tensors.

    Gives the factors ``<layer>.A`` and ``<layer>.B``, and the rest.
    """
    pairs = {name: tensor for name, tensor in weights.items() if name.endswith((".A", ".B"))}
    return pairs, {name: tensor for name, tensor in weights.items() if name not in pairs}


def apply_weights(
    module: nn.Module, weights: Weights, *, scale: float, may_lack: tuple[str, ...] = ()
) -> None:
    """Put one part's trained weights into its base model: whole tensors first, then updates.

    :param module: The base model, changed in place.
    :param weights: Its whole tensors, its low-rank factors, both or neither.
    :param scale: Factor of the low-rank updates.
    :param may_lack: Names of parameters that may keep the values they have where there are whole
        tensors.
    """
    pairs, whole = split_lora(weights)
    if whole:
        load_part(module, whole, may_lack=may_lack)
    merge_lora(module, pairs, scale=scale)


def load_part(module: nn.Module, weights: Weights, *, may_lack: tuple[str, ...] = ()) -> None:
    """Load one part's tensors into its module.

    :param module: The part.
    :param weights: Its tensors.
    :param may_lack: Names of parameters that may keep the values they have.
    :raises CheckpointError: If a name or a shape does not fit.
    """
    try:
        result = module.load_state_dict(weights, strict=False)
    except RuntimeError as error:
        raise CheckpointError(
            "the trained weights must fit their part", found=str(error)
        ) from error
    lacking = [name for name in result.missing_keys if name not in may_lack]
    if lacking or result.unexpected_keys:
        raise CheckpointError(
            f"the trained weights must be those of {type(module).__name__}, no more and no fewer",
            found=f"missing {lacking[:3]}, unexpected {result.unexpected_keys[:3]}",
        )
