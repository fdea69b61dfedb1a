"""The adapter: hidden states and neighbours go in, hidden states come out (Borgeaud et al. 2022).

Tokens of neighbours are packed, so that no linear layer computes padding.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from cog.baselines.retro.config import RetroConfig
from cog.baselines.retro.neighbours import Neighbours

INITIAL_SCALE = 0.02
Pair = tuple[Tensor, Tensor]  # keys and values


@dataclass(frozen=True, slots=True)
class Placement:
    """Which memory each token of a pass looks into."""

    # (num_seen,) tokens that look into one; None if all do, as many per memory and in the order of
    # memories, so that nothing has to be laid out
    seen: Tensor | None
    owners: Tensor  # (num_seen,) the memory of each of those
    slots: Tensor  # (num_seen,) its place among the tokens of the same memory
    num_seen: int
    num_slots: int

    @classmethod
    def make(
        cls, token_memories: NDArray[np.int64], *, num_memories: int, device: torch.device
    ) -> "Placement":
        """Lay out the tokens of a pass by the memory of each; -1 for none."""
        seen = np.flatnonzero(token_memories >= 0)
        seen = seen[np.argsort(token_memories[seen], kind="stable")]
        owners = token_memories[seen]
        counts = np.bincount(owners, minlength=num_memories)
        slots = np.arange(len(seen)) - (counts.cumsum() - counts)[owners]
        num_slots = int(counts.max(initial=0))
        is_dense = len(seen) == len(token_memories) == num_memories * num_slots
        is_dense = is_dense and bool((seen == np.arange(len(seen))).all())
        return cls(
            None if is_dense else torch.from_numpy(seen).to(device),
            torch.from_numpy(owners).to(device),
            torch.from_numpy(slots).to(device),
            len(seen),
            num_slots,
        )


@dataclass(frozen=True, slots=True)
class Memory:
    """What the tokens of a pass attend to."""

    # keys and values of the neighbours of each chunk, by layer that attends: twice
    # (num_memories, num_heads, memory_len, head_dim)
    pairs: tuple[Pair, ...]
    mask: Tensor  # (num_memories, memory_len) what is no padding, bool
    placement: Placement


def get_chunk(position: int, *, chunk_tokens: int) -> int:
    """The chunk whose neighbours a token may see (Borgeaud et al. 2022, section 2.4).

    The last token of a chunk is the first that sees the chunk's own neighbours: they were found
    with the whole chunk, and it predicts the token after it.
    """
    return (position + 1) // chunk_tokens - 1


class EncoderLayer(nn.Module):
    """A layer of a bidirectional Transformer, norm first, over packed tokens."""

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.norm = nn.LayerNorm(dim)
        self.query_key_value = nn.Linear(dim, 3 * dim)
        self.output = nn.Linear(dim, dim)
        self.feed = nn.Sequential(
            nn.LayerNorm(dim), nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim)
        )

    def forward(self, states: Tensor, neighbours: Neighbours) -> Tensor:
        """Let the tokens of each neighbour see each other: ``(num_tokens, dim)`` as before."""
        joined = self.query_key_value(self.norm(states))
        query, key, value = (
            split_heads(part, self.num_heads)
            for part in pick_rows(joined, neighbours.padded_rows).chunk(3, dim=-1)
        )
        attended = nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=neighbours.padded_mask[:, None, None, :]
        )
        packed = attended.transpose(1, 2).flatten(2)[neighbours.owners, neighbours.positions]
        states = states + self.output(packed)
        updated: Tensor = states + self.feed(states)
        return updated


class NeighbourEncoder(nn.Module):
    """A bidirectional Transformer over the tokens of a neighbour and its continuation.

    Differs from the paper: it does not attend to the chunk that is continued.
    """

    def __init__(self, config: RetroConfig) -> None:
        super().__init__()
        self.positions = nn.Parameter(
            INITIAL_SCALE * torch.randn(config.max_neighbour_tokens, config.dim)
        )
        self.enter = nn.LayerNorm(config.dim)
        self.layers = nn.ModuleList(
            EncoderLayer(config.dim, config.num_heads) for _ in range(config.encoder_layers)
        )
        self.leave = nn.LayerNorm(config.dim)

    def forward(self, embeddings: Tensor, neighbours: Neighbours) -> Tensor:
        """Encode the token embeddings of neighbours: ``(num_tokens, dim)`` as before."""
        states = self.enter(embeddings) + self.positions[neighbours.positions]
        for layer in self.layers:
            states = layer(states, neighbours)
        found: Tensor = self.leave(states)
        return found


class CrossAttention(nn.Module):
    """Attention of tokens to the neighbours of the chunk before them, behind a gate.

    The gate begins at 0, so that an adapter that was not trained changes nothing.
    """

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.norm = nn.LayerNorm(dim)
        self.query = nn.Linear(dim, dim, bias=False)
        self.key_value = nn.Linear(dim, 2 * dim, bias=False)
        self.output = nn.Linear(dim, dim, bias=False)
        self.gate = nn.Parameter(torch.zeros(1))

    def project(self, states: Tensor, rows: Tensor) -> Pair:
        """Keys and values of neighbours, ``(num_memories, num_heads, memory_len, head_dim)`` each.

        States are of encoded tokens, *shape* ``(num_tokens, dim)``, rows the tokens of each memory,
        ``(num_memories, memory_len)``.
        """
        key, value = pick_rows(self.key_value(states), rows).chunk(2, dim=-1)
        return split_heads(key, self.num_heads), split_heads(value, self.num_heads)

    def forward(self, hidden: Tensor, pair: Pair, mask: Tensor, placement: Placement) -> Tensor:
        """What is added to the hidden states of a pass; 0 for tokens that see nothing.

        *Shape:* ``(num_tokens, dim)`` of both; the mask is that of a :class:`Memory`.
        """
        seen = placement.seen
        queries = self.query(self.norm(hidden if seen is None else hidden[seen]))
        shape = (len(mask), placement.num_slots, hidden.shape[1])
        if seen is None:
            padded = queries.view(shape)
        else:
            padded = queries.new_zeros(shape)
            padded[placement.owners, placement.slots] = queries
        attended = nn.functional.scaled_dot_product_attention(
            split_heads(padded, self.num_heads), *pair, attn_mask=mask[:, None, None, :]
        )
        joined = attended.transpose(1, 2).flatten(2)  # (num_memories, num_slots, dim)
        rows = joined.flatten(0, 1)
        if seen is not None:
            rows = joined[placement.owners, placement.slots]
        found: Tensor = torch.tanh(self.gate) * self.output(rows)
        if seen is None:
            return found
        update = found.new_zeros(hidden.shape)
        update[seen] = found
        return update


class RetroAdapter(nn.Module):
    """Cross-attention after some layers of a frozen prefix encoder ("RETRO-fitting").

    Differs from the paper: the cross-attention follows a whole layer instead of its
    self-attention, and the layers of the prefix encoder stay as they were.
    """

    def __init__(self, config: RetroConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = NeighbourEncoder(config)
        self.cross = nn.ModuleDict(
            {
                str(layer): CrossAttention(config.dim, config.num_heads)
                for layer in config.cross_layers
            }
        )
        self._memory: Memory | None = None

    @property
    def gates(self) -> list[float]:
        """How far the gates are open, from the first layer on; 0 is closed."""
        values = [value for name, value in self.named_parameters() if name.endswith(".gate")]
        return [float(torch.tanh(value.detach())) for value in values]

    def attach(self, layers: Sequence[nn.Module]) -> list[RemovableHandle]:
        """Put the cross-attention behind layers of a prefix encoder."""
        return [
            layers[layer].register_forward_hook(self._make_hook(number))
            for number, layer in enumerate(self.config.cross_layers)
        ]

    def set_memory(self, memory: Memory | None) -> None:
        """Say what the next pass sees."""
        self._memory = memory

    def encode(self, embeddings: Tensor, neighbours: Neighbours) -> tuple[Pair, ...]:
        """Encode the neighbours of chunks by their token embeddings, ``(num_tokens, dim)``.

        Gives keys and values by layer that attends, as :class:`Memory` has them.
        """
        states = self.encoder(embeddings, neighbours)
        return tuple(
            layer.project(states, neighbours.memory_rows)  # type: ignore[operator]
            for layer in self.cross.values()
        )

    def _make_hook(self, number: int):  # type: ignore[no-untyped-def]  # noqa: ANN202
        cross = self.cross[str(self.config.cross_layers[number])]

        def hook(_module: nn.Module, _inputs: object, output: object) -> object:
            memory = self._memory
            if memory is None or memory.placement.num_seen == 0:
                return output
            hidden = output[0] if isinstance(output, tuple) else output
            assert isinstance(hidden, Tensor)
            flat = hidden.reshape(-1, hidden.shape[-1])
            update = cross(flat, memory.pairs[number], memory.mask, memory.placement)
            changed = hidden + update.to(hidden.dtype).reshape(hidden.shape)
            return (changed, *output[1:]) if isinstance(output, tuple) else changed

        return hook


def make_adapter(config: RetroConfig, *, seed: int) -> RetroAdapter:
    """Make an adapter that changes nothing yet."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return RetroAdapter(config)


def pick_rows(states: Tensor, rows: Tensor) -> Tensor:
    """Lay packed states out: ``(num_tokens, dim)`` to ``(batch, length, dim)``."""
    # an embedding, whose gradient is summed faster than that of an index
    return nn.functional.embedding(rows, states)


def split_heads(states: Tensor, num_heads: int) -> Tensor:
    """``(batch, length, dim)`` to ``(batch, num_heads, length, head_dim)``."""
    batch, length, dim = states.shape
    return states.view(batch, length, num_heads, dim // num_heads).transpose(1, 2)


def find_layers(network: nn.Module) -> list[nn.Module]:
    """The layers of a causal language model."""
    body = network.base_model
    layers = getattr(body, "layers", None) or body.h  # type: ignore[union-attr]
    assert isinstance(layers, nn.ModuleList)
    return list(layers)
