"""What is fitted: a model and an adapter go in, losses of batches come out ("RETRO-fitting").

The prefix encoder stays as it is; learnt are the encoder of neighbours, the cross-attention and
its gates, by the cross-entropy of the next token (Borgeaud et al. 2022, section 2.5 and 4.5).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import DynamicCache

from cog.baselines.retro.adapter import Memory, Placement, RetroAdapter, find_layers
from cog.baselines.retro.batches import IGNORED, RetroBatch
from cog.model.load import CogModel
from cog.training.objective import TOTAL


class RetroTrainee(nn.Module):
    """A model whose adapter is fitted; the model is changed and must not write texts.

    What is learnt stays in float32, also where all is computed in bf16.
    """

    def __init__(self, model: CogModel, adapter: RetroAdapter, *, is_half: bool) -> None:
        super().__init__()
        self.is_half = is_half
        self.network = model.prefix_encoder.get_modules()
        self.network.requires_grad_(False)
        # that of the cache knows no gradients; the fused one is slow in bf16 on a processor
        is_plain = is_half and model.prefix_encoder.device.type == "cpu"
        self.network.set_attn_implementation("eager" if is_plain else "sdpa")
        if is_half:
            for parameter in self.network.parameters():  # no buffer: rotations need float32
                parameter.data = parameter.data.bfloat16()
        self.adapter = adapter.to(model.prefix_encoder.device)
        adapter.attach(find_layers(self.network))

    @property
    def device(self) -> torch.device:
        """Where the model lies."""
        return self.network.device

    def forward(
        self, batch: RetroBatch, *, has_neighbours: bool = True, is_shifted: bool = False
    ) -> Tensor:
        """Mean cross-entropy of the tokens that see neighbours: their own, others', or none."""
        targets = batch.targets.to(self.device)
        counted = targets != IGNORED
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.is_half):
            memory = self.read_memory(batch, is_shifted=is_shifted) if has_neighbours else None
            states = self.compute_states(batch, memory)
            logits = self.network.get_output_embeddings()(states[counted])  # type: ignore[no-untyped-call]
        return nn.functional.cross_entropy(logits.float(), targets[counted])

    def compute_states(self, batch: RetroBatch, memory: Memory | None) -> Tensor:
        """Run the prefix encoder over the tokens that are learnt from.

        What comes before the first token that sees neighbours does not depend on the adapter: it is
        read without gradients, and its keys and values are kept for the rest.
        """
        body: nn.Module = self.network.base_model
        cache = DynamicCache()
        if batch.read_ids.shape[1]:
            with torch.no_grad():
                body(input_ids=batch.read_ids.to(self.device), cache=cache, use_cache=True)
        self.adapter.set_memory(memory)
        try:
            output = body(input_ids=batch.learnt_ids.to(self.device), cache=cache, use_cache=True)
        finally:
            self.adapter.set_memory(None)
        states: Tensor = output.last_hidden_state
        return states

    def read_memory(self, batch: RetroBatch, *, is_shifted: bool = False) -> Memory | None:
        """Encode the neighbours of a batch; shifted, each chunk sees those of another one."""
        if batch.neighbours is None:
            return None
        found = batch.neighbours.to(self.device)
        embeddings = self.network.get_input_embeddings()(found.token_ids).float()
        pairs = self.adapter.encode(embeddings, found)
        num_memories = len(found.memory_mask)
        token_memories = batch.token_memories
        if is_shifted:
            shifted = (token_memories + (num_memories + 1) // 2) % num_memories
            token_memories = np.where(token_memories < 0, -1, shifted)
        placement = Placement.make(token_memories, num_memories=num_memories, device=self.device)
        return Memory(pairs, found.memory_mask, placement)

    def count_operations(self, batch: RetroBatch) -> float:
        """Count the floating point operations of a step on a batch.

        Two per weight and token forward; two backward through frozen layers behind the first that
        attends; four backward in the adapter. Products of attention are left out.
        """
        num_learnt = batch.learnt_ids.numel()
        num_all = batch.read_ids.numel() + num_learnt
        layers = find_layers(self.network)
        size = sum(p.numel() for p in layers[0].parameters())
        behind = len(layers) - self.adapter.config.cross_layers[0] - 1
        head = sum(p.numel() for p in self.network.get_input_embeddings().parameters())
        total = 2.0 * size * (len(layers) * num_all + behind * num_learnt)
        total += 4.0 * head * batch.num_tokens
        if batch.neighbours is not None:
            dim = self.adapter.config.dim
            encoder = sum(p.numel() for p in self.adapter.encoder.parameters() if p.ndim > 1)
            per_neighbour = encoder + 2 * dim * dim * len(self.adapter.cross)
            total += 6.0 * per_neighbour * len(batch.neighbours.token_ids)
            total += 12.0 * dim * dim * len(self.adapter.cross) * num_learnt
        return float(total)


class RetroObjective:
    """Learning to use neighbours."""

    def __init__(self, trainee: RetroTrainee, *, learning_rate: float, gate_rate: float) -> None:
        self._trainee = trainee
        self.count_operations = trainee.count_operations
        self._learning_rate, self._gate_rate = learning_rate, gate_rate

    def group_parameters(self) -> list[dict[str, Any]]:
        """Group what is trained by learning rate."""
        named = list(self._trainee.adapter.named_parameters())
        gates = [value for name, value in named if name.endswith(".gate")]
        rest = [value for name, value in named if not name.endswith(".gate")]
        return [
            {"params": rest, "lr": self._learning_rate},
            {"params": gates, "lr": self._gate_rate},
        ]

    def compute_losses(self, network: nn.Module, batch: RetroBatch) -> Mapping[str, Tensor]:
        """Compute the loss of a batch."""
        return {TOTAL: network(batch)}

    def describe(self, batches: Sequence[RetroBatch]) -> Mapping[str, float]:
        """Say how far the gates are open."""
        gates = self._trainee.adapter.gates
        return {"gate": sum(map(abs, gates)) / len(gates)}

    def name_documents(self, batch: RetroBatch) -> str:
        """Name the documents of a batch."""
        return "documents " + ", ".join(map(str, batch.documents.tolist()))


@torch.no_grad()
def measure(
    network: nn.Module, batches: Sequence[RetroBatch], *, alone: float | None
) -> dict[str, float]:
    """Measure what neighbours buy on batches; the network is left in evaluation mode.

    Gives losses per token that may see neighbours: ``loss`` with its own; ``loss_of_others`` with
    those of another chunk, which tells use of neighbours from mere adaptation; ``loss_without``,
    that of the prefix encoder ``alone``, which training does not change, computed if it is None.
    """
    network.eval()
    kinds: dict[str, dict[str, bool]] = {"loss": {}, "loss_of_others": {"is_shifted": True}}
    if alone is None:
        kinds["loss_without"] = {"has_neighbours": False}
    num_tokens = sum(batch.num_tokens for batch in batches)
    found = {
        kind: sum(float(network(batch, **given)) * batch.num_tokens for batch in batches)
        / num_tokens
        for kind, given in kinds.items()
    }
    return found if alone is None else {**found, "loss_without": alone}
