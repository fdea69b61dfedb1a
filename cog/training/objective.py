"""What a loop trains: a network and a batch go in, the losses of a step come out."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from torch import Tensor, nn

from cog.training.batches import Batch
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
