"""Trained weights: a model folder's safetensors go in; tensors as trained and parts come out."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from cog.errors import CheckpointError
from cog.model.base_form import iter_tensors
from cog.model.config import ModelConfig, advise_on_damage

Weights = dict[str, Tensor]


def load_weights(folder: Path, config: ModelConfig, *, parts: tuple[str, ...] = ("",)) -> Weights:
    """Read the tensors of a model folder, as float32.

    Parts are how the names begin of those that are read. A file that is missing or no safetensors
    file is a ``CheckpointError``.
    """
    weights: Weights = {}
    for name in config.weights:
        try:
            for key, tensor in iter_tensors(folder / name):
                if key.startswith(parts):
                    weights[key] = tensor.float()
        except (OSError, SafetensorError) as error:
            raise CheckpointError(
                f"{name} must be a safetensors file",
                found=str(error),
                run=advise_on_damage(folder / name),
            ) from error
    return weights


def select_weights(weights: Weights, prefix: str) -> Weights:
    """Take the tensors of one part, such as ``bert.``, without it in their names."""
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in weights.items()
        if name.startswith(prefix)
    }


def split_lora(weights: Weights) -> tuple[Weights, Weights]:
    """Tell low-rank factors, ``<layer>.A`` and ``<layer>.B``, from whole tensors; give both."""
    pairs = {name: tensor for name, tensor in weights.items() if name.endswith((".A", ".B"))}
    return pairs, {name: tensor for name, tensor in weights.items() if name not in pairs}


class TrainedTensors:
    """The tensors of a base model as trained: whole ones replaced, low-rank updates added.

    An update is ``W + scale * B A`` (Hu et al. 2022, eq. 3). Nothing is changed in place, and
    nothing is computed before it is asked for, so that a tensor that is mapped into memory is read
    once and never copied.

    Weights are whole tensors, and low-rank factors ``<layer>.A`` of *shape* ``(rank, in)`` and
    ``<layer>.B`` of *shape* ``(out, rank)``, both or neither. Where there are whole ones, only
    tensors that ``may_lack`` names keep the values they have; ``transposed`` names matrices that
    are stored as *shape* ``(in, out)``. A pair that is incomplete, or a name or a shape that does
    not fit, is a ``CheckpointError``.
    """

    def __init__(
        self,
        base: Mapping[str, Tensor],
        weights: Weights,
        *,
        scale: float,
        may_lack: Collection[str] = (),
        transposed: Collection[str] = (),
        device: torch.device | None = None,
    ) -> None:
        self._base = base
        self._pairs, self._whole = split_lora(weights)
        self._scale = scale
        self._transposed = transposed
        self._device = device
        if self._whole:
            lacking = [n for n in base if n not in self._whole and n not in may_lack]
            _check_names(lacking, [n for n in self._whole if n not in base], of="their base model")
        for name, tensor in self._whole.items():
            self._check_shape(name, tensor.shape)
        for name in self._pairs:
            self._check_pair(name)

    def list_changed(self) -> list[str]:
        """Name the tensors that differ from the base model's."""
        updated = [f"{name.removesuffix('.A')}.weight" for name in self._pairs if name[-1] == "A"]
        return list(dict.fromkeys([*self._whole, *updated]))

    @torch.no_grad()
    def get(self, name: str) -> Tensor:
        """Give a tensor as trained, in float32; the base model's own where nothing changes it.

        If the base model lacks it, it is a ``CheckpointError``.
        """
        if name not in self._base:
            raise CheckpointError(
                "the base model must hold all tensors that its config.json speaks of",
                found=f"no {name}",
                run="save it again with save_pretrained of transformers, or name another base",
            )
        tensor = self._place(self._whole.get(name, self._base[name]))
        layer = name.removesuffix(".weight")
        if f"{layer}.A" not in self._pairs:
            return tensor
        inner, outer = (self._place(self._pairs[f"{layer}.{side}"]) for side in "AB")
        if name in self._transposed:
            inner, outer = outer.T, inner.T
        return torch.addmm(tensor, outer, inner, alpha=self._scale)

    def _place(self, tensor: Tensor) -> Tensor:
        return tensor.to(self._device, torch.float32)

    def _check_pair(self, name: str) -> None:
        layer, _, side = name.rpartition(".")
        if f"{layer}.{'B' if side == 'A' else 'A'}" not in self._pairs:
            raise CheckpointError("low-rank weights must come in pairs A and B", found=name)
        if side == "A":
            shape = (len(self._pairs[f"{layer}.B"]), self._pairs[name].shape[1])
            is_turned = f"{layer}.weight" in self._transposed
            self._check_shape(f"{layer}.weight", shape[::-1] if is_turned else shape)

    def _check_shape(self, name: str, shape: Sequence[int]) -> None:
        if name not in self._base:
            raise CheckpointError(
                "the trained weights must fit their base model",
                found=f"no layer {name.removesuffix('.weight')}",
            )
        if tuple(self._base[name].shape) != tuple(shape):
            raise CheckpointError(
                f"what was trained of {name} must fit it, {tuple(self._base[name].shape)}",
                found=str(tuple(shape)),
            )


@torch.no_grad()
def apply_weights(
    module: nn.Module,
    weights: Weights,
    *,
    scale: float,
    may_lack: Collection[str] = (),
    transposed: Collection[str] = (),
) -> None:
    """Put one part's trained weights, as of :class:`TrainedTensors`, into its base model."""
    own = module.state_dict()
    trained = TrainedTensors(own, weights, scale=scale, may_lack=may_lack, transposed=transposed)
    for name in trained.list_changed():
        own[name].copy_(trained.get(name))


def load_part(module: nn.Module, weights: Weights, *, may_lack: tuple[str, ...] = ()) -> None:
    """Load one part's tensors into its module, whose parameters may lack some of them."""
    try:
        result = module.load_state_dict(weights, strict=False)
    except RuntimeError as error:
        raise CheckpointError(
            "the trained weights must fit their part", found=str(error)
        ) from error
    lacking = [name for name in result.missing_keys if name not in may_lack]
    _check_names(lacking, result.unexpected_keys, of=type(module).__name__)


def _check_names(lacking: Sequence[str], unexpected: Sequence[str], *, of: str) -> None:
    if lacking or unexpected:
        raise CheckpointError(
            f"the trained weights must be those of {of}, no more and no fewer",
            found=f"missing {list(lacking[:3])}, unexpected {list(unexpected[:3])}",
        )
