"""A model in training on the bases of a tiny model folder."""

import copy
from dataclasses import replace
from functools import cache
from pathlib import Path

import torch
from transformers import PreTrainedModel

from cog.model.modules import load_bidirectional, load_causal
from cog.model.weights import Weights
from cog.profiles import LossProfile, ModelProfile
from cog.training.model import TrainableModel
from cog.training.tensors import to_tensors
from tests.training.loss_cases import make_batch, make_profile
from tests.training.making import make_recipe

CPU = torch.device("cpu")


def make_model_profile(*, losses: LossProfile | None = None, **changes: object) -> ModelProfile:
    """The profile `tiny` with other fields."""
    profile = replace(make_recipe().model, losses=losses or make_profile())
    return replace(profile, **changes)  # type: ignore[arg-type]


@cache
def load_base(folder: Path) -> PreTrainedModel:
    return load_causal(folder) if folder.name == "prefix" else load_bidirectional(folder)


def make_trainable(
    folder: Path, *, copies: bool = True, weights: Weights | None = None, **changes: object
) -> TrainableModel:
    """A model on the bases of a tiny model folder; same call, same model."""
    torch.manual_seed(3)
    return TrainableModel(
        copy.deepcopy(load_base(folder / "prefix")),
        copy.deepcopy(load_base(folder / "phrase")) if copies else None,
        profile=make_model_profile(**changes),  # type: ignore[arg-type]
        weights=weights or {},
    )


def take_steps(model: TrainableModel, *, num_steps: int = 3) -> list[float]:
    """A few steps on one batch; weights are then rounded as a file rounds them."""
    tensors = to_tensors(make_batch(), model.losses, CPU)
    groups = model.parameter_groups(make_recipe().model.rates)
    optimizer = torch.optim.AdamW(groups, lr=0.01)
    totals = []
    model.train()
    for _ in range(num_steps):
        loss = model(tensors).total
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        totals.append(loss.item())
    with torch.no_grad():
        for tensor in model.trained_weights().values():
            tensor.copy_(tensor.half())
    model.eval()
    return totals
