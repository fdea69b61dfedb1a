"""The model in training: tensors of a batch go in, its losses come out (CoG, section 3)."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from cog.model.modules import tied_names
from cog.model.phrase_encoder import Head, untrained_names
from cog.model.weights import Weights, load_part, select_weights, split_lora
from cog.profiles import LossProfile, ModelProfile, RateProfile
from cog.training.lora import LoraLinear, add_lora, load_lora, lora_weights
from cog.training.losses.spans import score_spans
from cog.training.losses.vocabulary import (
    joint_losses,
    score_vocabulary,
    token_losses,
    weighted_mean,
)
from cog.training.tensors import BatchTensors

Pair = tuple[Tensor, Tensor]


@dataclass(frozen=True, slots=True)
class Losses:
    """What a batch costs."""

    total: Tensor  # () what is minimised
    token: Tensor  # () token loss, per token
    phrase: Tensor  # () phrase loss, per query by weight; 0 where only tokens are learnt
    # () log-probability of the next segment under one softmax over the vocabulary and every span of
    # the batch, nothing left out, whatever the model learns by; per query. None unless the batch is
    # measured
    segment: Tensor | None = None


class TrainableModel(nn.Module):
    """Both encoders, the heads and the query projection; without ``bert`` it learns tokens only.

    What trained weights, by name as in a model folder, hold decides over the profile: low-rank
    updates go on with their own ranks, whole tensors are trained as a whole, heads keep their
    width.
    """

    def __init__(
        self,
        lm: PreTrainedModel,
        bert: PreTrainedModel | None,
        *,
        profile: ModelProfile,
        weights: Weights,
    ) -> None:
        super().__init__()
        self.losses: LossProfile = profile.losses
        self._profile = profile
        self._kept: dict[str, set[str]] = {}
        self.lm = lm
        self._begin("lm", rank=profile.prefix_lora_rank, weights=weights)
        self.bert = bert
        if bert is not None:
            bert.pooler = None  # type: ignore[assignment]  # never used
            self._begin("bert", rank=profile.phrase_lora_rank, weights=weights)
            if not profile.train_word_embeddings:
                bert.get_input_embeddings().requires_grad_(False)
            self._make_heads(bert, weights)

    def _begin(self, name: str, *, rank: int, weights: Weights) -> None:
        network: PreTrainedModel = getattr(self, name)
        _set_dropout(network, self._profile.dropout)
        pairs, full_weights = split_lora(select_weights(weights, f"{name}."))
        self._kept[name] = set(full_weights)
        ranks: int | dict[str, int] = rank
        if full_weights:
            may_lack = (*untrained_names(network.state_dict()), *tied_names(network))
            load_part(network, full_weights, may_lack=may_lack)
            ranks = 0
        if pairs:
            ranks = {n[:-2]: factor.shape[0] for n, factor in pairs.items() if n.endswith(".A")}
        if ranks:
            scale, dropout = self._profile.lora_scale, self._profile.dropout
            add_lora(network, rank=ranks, scale=scale, dropout=dropout)
            load_lora(network, pairs)

    def _make_heads(self, bert: PreTrainedModel, weights: Weights) -> None:
        profile = self._profile
        width = int(self.lm.config.hidden_size)
        hidden = profile.head_width
        if "start.l1.weight" in weights:
            hidden = weights["start.l1.weight"].shape[0]
        self.start = Head(int(bert.config.hidden_size), hidden, width // 2)
        self.end = Head(int(bert.config.hidden_size), hidden, width // 2)
        has_projection = profile.query_projection or "qproj.weight" in weights
        self.qproj = nn.Linear(width, width, bias=False) if has_projection else None
        if self.qproj is not None:
            nn.init.eye_(self.qproj.weight)  # begins as the paper's model
        for name in ("start", "end", "qproj"):
            if part := select_weights(weights, f"{name}."):
                load_part(getattr(self, name), part)

    def move_to(self, device: torch.device) -> None:
        """Move the model; on a GPU what is frozen is kept in half precision."""
        self.to(device)
        if device.type == "cuda":
            for parameter in self.parameters():
                if not parameter.requires_grad:
                    parameter.data = parameter.data.bfloat16()
            if self._profile.compile_blocks:
                self.compile_blocks()
        if self._profile.checkpoint_blocks:
            for network in (self.lm, self.bert):
                if network is not None:
                    network.activation_checkpointing_enable({"use_reentrant": False})

    def compile_blocks(self, **options: Any) -> None:  # noqa: ANN401
        """Compile every transformer block; all blocks of an encoder share what is compiled.

        Options are those of ``torch.compile``.
        """
        for network in (self.lm, self.bert):
            for block in () if network is None else find_blocks(network):
                block.compile(**options)

    def forward(self, batch: BatchTensors) -> Losses:
        """Compute the losses of a batch.

        The vocabulary is scored once: the queries are some of the positions that predict a token.
        """
        output = self.lm.base_model(input_ids=batch.token_ids, use_cache=False)
        states = output.last_hidden_state.flatten(0, 1)[batch.target_rows]  # (num_tokens, dim)
        device = states.device.type
        if torch.is_autocast_enabled(device):
            states = states.to(torch.get_autocast_dtype(device))
        head: nn.Module = self.lm.get_output_embeddings()  # type: ignore[no-untyped-call]
        weight: Tensor = head.weight.to(states.dtype)  # type: ignore[assignment]
        scores = score_vocabulary(states, weight, batch.targets)
        token = token_losses(*scores).mean()
        if self.bert is None:
            return Losses(token, token, token.new_zeros(()))
        rows = batch.query_targets
        halves, vectors = self._encode(batch, states[rows])
        at_queries = scores[0][rows], scores[1][rows]
        per_query = joint_losses(
            *at_queries,
            score_spans(halves, vectors, batch.spans),
            batch.is_phrase,
            is_gold_neutral=self.losses.neutrals == "left-out",
        )
        is_weighed = self.losses.weights == "labels"
        weights = batch.weights if is_weighed else torch.ones_like(batch.weights)
        phrase = weighted_mean(per_query, weights)
        losses = self.losses
        total = losses.token_weight * token + losses.phrase_weight * phrase
        return Losses(total, token, phrase, _measure(batch, at_queries, halves, vectors))

    def _encode(self, batch: BatchTensors, states: Tensor) -> tuple[Pair, Pair]:
        # halves of the queries (num_queries, dim / 2), vectors of words (num_words, dim / 2)
        queries = states if self.qproj is None else self.qproj(states)
        start, end = queries.float().chunk(2, dim=1)
        assert self.bert is not None
        output = self.bert(input_ids=batch.piece_ids, attention_mask=batch.piece_mask.long())
        pieces = output.last_hidden_state.flatten(0, 1)
        starts = self.start(pieces[batch.start_rows]).float()
        ends = self.end(pieces[batch.end_rows]).float()
        return (start.contiguous(), end.contiguous()), (starts, ends)

    def parameter_groups(self, rates: RateProfile) -> list[dict[str, Any]]:
        """Group what is trained by learning rate."""
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
        """Take what a model folder holds: what was trained, or was not the base's to begin with."""
        weights = self._take("lm")
        if self.bert is None:
            return weights
        weights |= self._take("bert")
        for name in ("start", "end", "qproj"):
            part = getattr(self, name)
            if part is not None:
                weights |= {f"{name}.{key}": tensor for key, tensor in part.state_dict().items()}
        return weights

    def _take(self, name: str) -> Weights:
        network: nn.Module = getattr(self, name)
        kept = self._kept[name]
        if any(isinstance(module, LoraLinear) for module in network.modules()):
            weights = lora_weights(network)
        else:
            weights = {
                key: parameter.detach()
                for key, parameter in network.named_parameters()
                if parameter.requires_grad or key in kept
            }
        return {f"{name}.{key}": tensor for key, tensor in weights.items()}


def find_blocks(network: nn.Module) -> Iterable[nn.Module]:
    """Find the transformer blocks of an encoder: its longest list of modules."""
    lists = [module for module in network.modules() if isinstance(module, nn.ModuleList)]
    return max(lists, key=len, default=nn.ModuleList())


@torch.no_grad()
def _measure(batch: BatchTensors, at_queries: Pair, halves: Pair, vectors: Pair) -> Tensor | None:
    if batch.measured is None:
        return None
    spans = score_spans(halves, vectors, batch.measured)
    losses = joint_losses(*at_queries, spans, batch.is_phrase, is_gold_neutral=False)
    return -losses.mean()


def _set_dropout(network: nn.Module, share: float) -> None:
    for module in network.modules():
        if isinstance(module, nn.Dropout):
            module.p = share
        elif isinstance(getattr(module, "attention_dropout", None), float):
            module.attention_dropout = share  # type: ignore[assignment]
