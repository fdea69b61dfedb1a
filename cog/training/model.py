"""The model in training: tensors of a batch go in, its losses come out (CoG, section 3)."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from cog.model.load import tied_names
from cog.model.phrase_encoder import Head, untrained_names
from cog.model.weights import Weights, load_part, select_weights, split_lora
from cog.training.lora import LoraLinear, add_lora, load_lora, lora_weights
from cog.training.losses.factorised import edge_losses
from cog.training.losses.phrase import joint_losses, surprise_weights, weighted_mean
from cog.training.losses.spans import score_spans
from cog.training.losses.vocabulary import score_vocabulary
from cog.training.profiles import LossProfile, ModelProfile, RateProfile
from cog.training.tensors import BatchTensors


@dataclass(frozen=True, slots=True)
class Losses:
    """What a batch costs.

    :param total: What is minimised. *Shape:* ``()``
    :param token: Token loss, per token. *Shape:* ``()``
    :param phrase: Phrase loss, per query; 0 where only tokens are learnt. *Shape:* ``()``
    """

    total: Tensor
    token: Tensor
    phrase: Tensor


class TrainableModel(nn.Module):
    """Both encoders, the heads and the query projection.

    :param lm: The causal model.
    :param bert: The bidirectional model; None to learn tokens only.
    :param profile: What the model is made of and learns by.
    :param weights: Trained weights to begin with, by name as in a model folder; empty for none.
    """

    def __init__(
        self,
        lm: nn.Module,
        bert: nn.Module | None,
        *,
        profile: ModelProfile,
        weights: Weights,
    ) -> None:
        super().__init__()
        self._profile = profile
        self.losses: LossProfile = profile.losses
        self.lm = lm
        _begin(lm, select_weights(weights, "lm."), rank=profile.prefix_lora_rank, profile=profile)
        width = int(lm.config.hidden_size)  # type: ignore[union-attr, arg-type]
        self.bert = bert
        if bert is None:
            return
        _begin(
            bert, select_weights(weights, "bert."), rank=profile.phrase_lora_rank, profile=profile
        )
        if not profile.train_word_embeddings:
            bert.get_input_embeddings().requires_grad_(False)  # type: ignore[operator]
        piece_width = int(bert.config.hidden_size)  # type: ignore[union-attr, arg-type]
        self.start = Head(piece_width, profile.head_width, width // 2)
        self.end = Head(piece_width, profile.head_width, width // 2)
        self.qproj = nn.Linear(width, width, bias=False) if profile.query_projection else None
        if self.qproj is not None:
            nn.init.eye_(self.qproj.weight)
        for name in ("start", "end", "qproj"):
            part = select_weights(weights, f"{name}.")
            if part:
                load_part(getattr(self, name), part)

    def forward(self, batch: BatchTensors) -> Losses:
        """Compute the losses of a batch.

        :param batch: The batch.
        :returns: Its losses.
        """
        output = self.lm.base_model(input_ids=batch.token_ids)  # type: ignore[operator]
        states = output.last_hidden_state.flatten(0, 1)[batch.target_rows]  # (num_tokens, dim)
        weight = self.lm.get_output_embeddings().weight.to(states.dtype)  # type: ignore[operator]
        gold, rest = score_vocabulary(states, weight, batch.targets)
        gold, rest = gold.float(), rest.float()
        token_losses = softplus(rest - gold)
        token = token_losses.mean()
        if self.bert is None:
            return Losses(token, token, token.new_zeros(()))
        per_query = self._phrase_losses(batch, states, weight, gold, rest)
        weights = self._weigh(batch, token_losses)
        phrase = weighted_mean(per_query, weights)
        losses = self.losses
        total = losses.token_weight * token + losses.phrase_weight * phrase
        return Losses(total, token, phrase)

    def _phrase_losses(
        self, batch: BatchTensors, states: Tensor, weight: Tensor, gold: Tensor, rest: Tensor
    ) -> Tensor:
        rows = batch.query_targets
        queries = states[rows]
        if self.qproj is not None:
            queries = self.qproj(queries)
        halves = queries.float().chunk(2, dim=1)
        assert self.bert is not None
        pieces = self.bert(
            input_ids=batch.piece_ids, attention_mask=batch.piece_mask.long()
        ).last_hidden_state.flatten(0, 1)
        vectors = (
            self.start(pieces[batch.start_rows]).float(),
            self.end(pieces[batch.end_rows]).float(),
        )
        if self.losses.phrase == "factorised":
            sides = weight.float().chunk(2, dim=1)
            labels = (batch.start_labels, batch.end_labels)
            found = [
                edge_losses(halves[i], sides[i], vectors[i], batch.targets[rows], labels[i])
                for i in range(2)
            ]
            return found[0] + found[1]
        spans = score_spans((halves[0], halves[1]), vectors, batch.spans)
        return joint_losses(
            gold[rows],
            rest[rows],
            spans,
            batch.is_phrase,
            is_gold_neutral=self.losses.neutrals == "left-out",
        )

    def _weigh(self, batch: BatchTensors, token_losses: Tensor) -> Tensor:
        if self.losses.weights == "none":
            return torch.ones_like(batch.weights)
        if self.losses.weights == "surprise":
            return batch.weights * surprise_weights(
                token_losses[batch.query_targets], batch.is_phrase
            )
        return batch.weights

    def parameter_groups(self, rates: RateProfile) -> list[dict[str, Any]]:
        """Group what is trained by learning rate.

        :param rates: The rates.
        :returns: Groups as an optimiser takes them.
        """
        parts: list[tuple[nn.Module | None, float]] = [(self.lm, rates.prefix)]
        if self.bert is not None:
            parts += [(self.bert, rates.phrase), (self.start, rates.heads)]
            parts += [(self.end, rates.heads), (self.qproj, rates.projection)]
        groups = []
        for part, rate in parts:
            chosen = [] if part is None else [p for p in part.parameters() if p.requires_grad]
            if chosen:
                groups.append({"params": chosen, "lr": rate})
        return groups

    def trained_weights(self) -> Weights:
        """Take what a model folder holds.

        :returns: Tensors by name.
        """
        found = {f"lm.{name}": each for name, each in _take(self.lm).items()}
        if self.bert is None:
            return found
        found |= {f"bert.{name}": each for name, each in _take(self.bert).items()}
        for name in ("start", "end", "qproj"):
            part = getattr(self, name)
            if part is not None:
                found |= {f"{name}.{key}": each for key, each in part.state_dict().items()}
        return found


def _find_tied(network: Any) -> tuple[str, ...]:  # noqa: ANN401
    has_head = network.get_output_embeddings() is not None
    return tied_names(network) if has_head else ()


def _begin(network: nn.Module, weights: Weights, *, rank: int, profile: ModelProfile) -> None:
    pairs, whole = split_lora(weights)
    if whole:
        load_part(network, whole, may_lack=(*untrained_names(network), *_find_tied(network)))
    if pairs:
        ranks = {n.rpartition(".")[0]: t.shape[0] for n, t in pairs.items() if n.endswith(".A")}
        add_lora(network, rank=ranks, scale=profile.lora_scale, dropout=profile.dropout)
        load_lora(network, pairs)
    elif rank > 0 and not whole:
        add_lora(network, rank=rank, scale=profile.lora_scale, dropout=profile.dropout)


def _take(network: Any) -> Weights:  # noqa: ANN401
    if any(isinstance(module, LoraLinear) for module in network.modules()):
        return lora_weights(network)
    left_out = _find_tied(network)
    return {
        name: tensor.detach()
        for name, tensor in network.state_dict().items()
        if name not in left_out
    }
