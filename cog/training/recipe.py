"""Recipes: the name of a profile goes in; what is trained, and how, comes out, checked."""

import difflib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any

from cog.errors import ParamsError
from cog.params import TrainParams, read_section
from cog.training.profiles import ModelProfile, read_model_profile

PARTS = ("model", "loop")
# how a model learns, not what it is
LEARNING = ("losses", "rates", "dropout", "checkpoint_blocks", "compile_blocks")


@dataclass(frozen=True, slots=True)
class LoopProfile:
    """How a model is trained.

    :param chunks_per_batch: Number of chunks of a batch, on each device.
    :param seeds_per_batch: Number of them drawn at random; the rest are their nearest neighbours
        by the retriever. As many as ``chunks_per_batch`` for random batches.
    :param max_of_document: Number of chunks of one document among a seed's neighbours, at most.
    :param accumulation_steps: Number of batches whose gradients make one optimiser step.
    :param max_steps: Number of optimiser steps, unless the command line says otherwise.
    :param warmup_share: Share of the run in which learning rates rise.
    :param final_rate_share: Learning rate at the end, as a share of the highest.
    :param weight_decay: Factor of AdamW's decay, on matrices.
    :param max_gradient_norm: Norm to which gradients are cut.
    :param min_prefix_tokens: Number of a chunk's tokens before a position that chooses a segment.
    :param context_tokens: Number of tokens of the document before a chunk that are read with it, at
        most; they make its prefixes longer and are not learnt from again.
    :param inner_share: Share of the positions inside words that choose too.
    :param common_weight: Weight of a phrase that holds only frequent words.
    :param held_out_share: Share of the documents that is set aside for validation.
    :param validation_batches: Number of batches of them that are looked at; 0 for no validation.
    :param validation_steps: Number of steps between two validations.
    :param checkpoint_steps: Number of steps between two checkpoints.
    """

    chunks_per_batch: int
    seeds_per_batch: int
    max_of_document: int
    accumulation_steps: int
    max_steps: int
    warmup_share: float
    final_rate_share: float
    weight_decay: float
    max_gradient_norm: float
    min_prefix_tokens: int
    context_tokens: int
    inner_share: float
    common_weight: float
    held_out_share: float
    validation_batches: int
    validation_steps: int
    checkpoint_steps: int


@dataclass(frozen=True, slots=True)
class Recipe:
    """A profile, checked.

    :param name: Its name.
    :param model: What the model is made of and learns by.
    :param loop: How it is trained.
    """

    name: str
    model: ModelProfile
    loop: LoopProfile

    def architecture(self) -> dict[str, Any]:
        """What decides the shapes of the trained weights, by field.

        :returns: Plain values.
        """
        fields = asdict(self.model)
        return {name: value for name, value in fields.items() if name not in LEARNING}


def load_recipe(params: TrainParams, name: str | None) -> Recipe:
    """Read a profile.

    :param params: The section ``train`` of params.yaml.
    :param name: Name of the profile; None for the default.
    :returns: The recipe.
    :raises ParamsError: If there is no such profile, or one of its keys is unknown, missing or of
        the wrong type.
    """
    name = name or params.profile
    if name not in params.profiles:
        nearest = difflib.get_close_matches(name, params.profiles, n=1, cutoff=0.0)
        raise ParamsError(
            f"the profile must be one of {', '.join(params.profiles)}",
            found=repr(name),
            run=f"did you mean --profile {nearest[0]}?" if nearest else "add it to params.yaml",
            about=name,
        )
    where = f"train.profiles.{name}"
    content = params.profiles[name]
    if not isinstance(content, Mapping) or set(content) != set(PARTS):
        raise ParamsError(
            f"{where} must have the keys model and loop",
            found=", ".join(content) if isinstance(content, Mapping) else repr(content),
            about=where,
        )
    loop: LoopProfile = read_section(LoopProfile, content["loop"], where=f"{where}.loop")
    _check(loop, where=f"{where}.loop")
    return Recipe(name, read_model_profile(content["model"], where=f"{where}.model"), loop)


def _check(loop: LoopProfile, *, where: str) -> None:
    positive = (
        *("chunks_per_batch", "seeds_per_batch", "max_of_document", "accumulation_steps"),
        *("max_steps", "max_gradient_norm", "validation_steps", "checkpoint_steps"),
    )
    shares = ("warmup_share", "final_rate_share", "inner_share", "held_out_share")
    for name, value in asdict(loop).items():
        if not isfinite(value):
            raise ParamsError(f"{where}.{name} must be finite", found=str(value), about=name)
        if value < 0 or (name in positive and value == 0):
            raise ParamsError(f"{where}.{name} must be above 0", found=str(value), about=name)
        if name in shares and value > 1:
            raise ParamsError(f"{where}.{name} must be at most 1", found=str(value), about=name)
    if loop.chunks_per_batch < 2:
        raise ParamsError(
            f"{where}.chunks_per_batch must be at least 2, so that there is something to copy",
            found=str(loop.chunks_per_batch),
            about="chunks_per_batch",
        )
