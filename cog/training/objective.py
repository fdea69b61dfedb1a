"""What a loop trains, and how it is measured: a network and batches go in, losses come out.

What a model makes of held-out documents is measured on the same batches every time, made once:
chunks of documents that are never trained on, segmented against each other.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from cog.profiles import LossProfile
from cog.training.batches import Batch, BatchSource, iter_batches
from cog.training.initial_model import OpenedModel, Recipe
from cog.training.model import Losses
from cog.training.preparing import TrainingData
from cog.training.tensors import to_tensors

TOTAL = "loss"  # the name of what is minimised


class LoopBatch(Protocol):
    """A batch, as far as a loop looks into it."""

    @property
    def number(self) -> int:
        """What it was drawn by."""

    @property
    def num_tokens(self) -> int:
        """Number of tokens that are learnt from."""


class Objective(Protocol):
    """What is learnt: which weights, at which rates, by which losses."""

    def group_parameters(self) -> list[dict[str, Any]]:
        """Group what is trained by learning rate."""

    def compute_losses(self, network: nn.Module, batch: Any) -> Mapping[str, Tensor]:  # noqa: ANN401
        """Compute the losses of a batch.

        The network is the model as ``accelerate`` wraps it. Losses have the same names every time;
        ``loss`` is minimised.
        """

    def count_operations(self, batch: Any) -> float:  # noqa: ANN401
        """Count the floating point operations of a step on a batch."""

    def describe(self, batches: Sequence[Any]) -> Mapping[str, float]:
        """Say what is special about the batches of a step."""

    def name_documents(self, batch: Any) -> str:  # noqa: ANN401
        """Name the documents of a batch."""


class CopyObjective:
    """Learning to copy, or the next token (CoG, section 3)."""

    def __init__(self, opened: OpenedModel, data: TrainingData, recipe: Recipe) -> None:
        self._model, self._recipe = opened.model, recipe
        self._device = next(opened.model.parameters()).device
        self.count_operations = opened.count_operations
        self.name_documents = data.name_documents

    def group_parameters(self) -> list[dict[str, Any]]:
        """Group what is trained by learning rate."""
        return self._model.parameter_groups(self._recipe.model.rates)

    def compute_losses(self, network: nn.Module, batch: Batch) -> Mapping[str, Tensor]:
        """Compute the losses of a batch: what is minimised, and its two parts."""
        losses: Losses = network(to_tensors(batch, self._recipe.model.losses, self._device))
        return {TOTAL: losses.total, "token_loss": losses.token, "phrase_loss": losses.phrase}

    def describe(self, batches: Sequence[Batch]) -> Mapping[str, float]:
        """Say how many of the choices are phrases."""
        num_queries = sum(batch.num_queries for batch in batches)
        num_phrases = sum(int(batch.labels.is_phrase.sum()) for batch in batches)
        return {"phrase_share": num_phrases / max(1, num_queries)}


def count_written(batch: Batch) -> int:
    """Count the tokens that the choices of a batch write, where they are all that write its chunks.

    That is every token, but for the first of a chunk where no begin token stands before it.
    """
    ends = batch.token_mask.sum(1)
    firsts = ends - 1  # column of the first query of each chunk
    np.minimum.at(firsts, batch.labels.query_chunks, batch.labels.query_positions)
    return int((ends - 1 - firsts).sum())


def make_validation(
    source: BatchSource, *, num_batches: int, losses: LossProfile, device: torch.device
) -> Callable[[nn.Module], Mapping[str, float]]:
    """Make what measures a model on held-out documents."""
    size = min(source.sampler.num_chunks, len(source.chunks))
    num_different = max(1, len(source.chunks) // size)
    numbers = range(min(num_batches, num_different))
    batches = list(iter_batches(source, numbers, num_workers=0))

    def validate(model: nn.Module) -> Mapping[str, float]:
        return measure(model, batches, losses=losses, device=device)

    return validate


@torch.no_grad()
def measure(
    model: nn.Module,
    batches: Sequence[Batch],
    *,
    losses: LossProfile,
    device: torch.device,
) -> dict[str, float]:
    """Measure a model on batches; it is left in evaluation mode.

    Gives ``token_loss`` per token; ``phrase_loss`` per choice, as it is learnt;
    ``segment_log_probability`` of the text along its segmentation, per token that is written, in
    one softmax that leaves nothing out; ``phrase_share`` of the choices that are phrases.
    """
    model.eval()
    sums = torch.zeros(3, dtype=torch.float64)
    num_tokens = num_written = num_queries = num_phrases = 0
    for batch in batches:
        batch_losses = model(to_tensors(batch, losses, device, is_measured=True))
        sums[0] += float(batch_losses.token) * batch.num_tokens
        sums[1] += float(batch_losses.phrase) * batch.num_queries
        if batch_losses.segment is not None:
            sums[2] += float(batch_losses.segment) * batch.num_queries
        num_tokens += batch.num_tokens
        num_written += count_written(batch)
        num_queries += batch.num_queries
        num_phrases += int(batch.labels.is_phrase.sum())
    token, phrase, segments = sums.tolist()
    measured = {"token_loss": token / max(1, num_tokens)}
    if getattr(model, "bert", None) is None:  # never copies: its segments are its tokens
        return {**measured, "segment_log_probability": -measured["token_loss"]}
    return {
        **measured,
        "phrase_loss": phrase / max(1, num_queries),
        "segment_log_probability": segments / max(1, num_written),
        "phrase_share": num_phrases / max(1, num_queries),
    }
