"""What a loop trains: a network and a numbered batch go in, the losses of a step come out."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from torch import Tensor, nn

from cog.training.batch import Batch
from cog.training.model import Losses, TrainableModel
from cog.training.recipe import Recipe
from cog.training.tensors import to_tensors

TOTAL = "loss"  # the name of what is minimised


class LoopSettings(Protocol):
    """What a loop needs to know of how a model is trained; ``LoopProfile`` says what each means."""

    @property
    def accumulation_steps(self) -> int:
        """Number of batches whose gradients make one step."""

    @property
    def warmup_share(self) -> float:
        """Share of the run in which learning rates rise."""

    @property
    def final_rate_share(self) -> float:
        """Learning rate at the end, as a share of the highest."""

    @property
    def weight_decay(self) -> float:
        """Factor of AdamW's decay, on matrices."""

    @property
    def max_gradient_norm(self) -> float:
        """Norm to which gradients are cut."""

    @property
    def validation_steps(self) -> int:
        """Number of steps between two validations."""

    @property
    def checkpoint_steps(self) -> int:
        """Number of steps between two checkpoints."""


class LoopBatch(Protocol):
    """A batch, as far as a loop looks into it."""

    @property
    def number(self) -> int:
        """Its number."""

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

    def describe(self, batches: Sequence[Any]) -> Mapping[str, float]:
        """Say what is special about the batches of a step."""


class CopyObjective:
    """Learning to copy, or the next token (CoG, section 3)."""

    def __init__(self, model: TrainableModel, recipe: Recipe) -> None:
        self._model, self._recipe = model, recipe
        self._device = next(model.parameters()).device

    def group_parameters(self) -> list[dict[str, Any]]:
        """Group what is trained by learning rate."""
        return self._model.parameter_groups(self._recipe.model.rates)

    def compute_losses(self, network: nn.Module, batch: Batch) -> Mapping[str, Tensor]:
        """Compute the losses of a batch.

        The network is the model as ``accelerate`` wraps it. Losses have the same names every time;
        ``loss`` is minimised.
        """
        losses: Losses = network(to_tensors(batch, self._recipe.model.losses, self._device))
        return {TOTAL: losses.total, "token_loss": losses.token, "phrase_loss": losses.phrase}

    def describe(self, batches: Sequence[Batch]) -> Mapping[str, float]:
        """Say how many of the choices are phrases."""
        num_queries = sum(batch.num_queries for batch in batches)
        num_phrases = sum(int(batch.labels.is_phrase.sum()) for batch in batches)
        return {"phrase_share": num_phrases / max(1, num_queries)}
