"""The adapter: hidden states and encoded neighbours go in, hidden states come out."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

INITIAL_SCALE = 0.02


@dataclass(frozen=True, slots=True)
class RetroConfig:
    """Sizes of the adapter.

    :param dim: Width of the prefix encoder.
    :param num_heads: Number of attention heads, of the cross-attention and of the encoder.
    :param chunk_tokens: Number of tokens after which neighbours are retrieved anew.
    :param num_neighbours: Number of neighbours of a chunk.
    :param neighbour_tokens: Number of tokens of a neighbour, at most.
    :param continuation_tokens: Number of tokens of what follows it, at most.
    :param cross_layers: Layers of the prefix encoder after which neighbours are attended to.
    :param encoder_layers: Number of layers of the encoder of neighbours.
    """

    dim: int
    num_heads: int
    chunk_tokens: int
    num_neighbours: int
    neighbour_tokens: int
    continuation_tokens: int
    cross_layers: tuple[int, ...]
    encoder_layers: int

    @property
    def max_neighbour_tokens(self) -> int:
        """Number of tokens of a neighbour with its continuation, at most.

        :returns: The count.
        """
        return self.neighbour_tokens + self.continuation_tokens


@dataclass(frozen=True, slots=True)
class Memory:
    """What the tokens of one pass attend to.

    :param states: Encoded neighbours. *Shape:* ``(num_memories, memory_len, dim)``
    :param mask: What is no padding. *Shape:* ``(num_memories, memory_len)``, bool
    :param token_memories: The memory of each token of the pass, in the order of the pass; -1 for
        none. *Shape:* ``(num_tokens,)``, int64
    """

    states: Tensor
    mask: Tensor
    token_memories: Tensor


def get_chunk(position: int, *, chunk_tokens: int) -> int:
    """The chunk whose neighbours a token may see (Borgeaud et al. 2022, section 2.4).

    The last token of a chunk is the first that sees the chunk's own neighbours: they were found
    with the whole chunk, and it predicts the token after it.

    :param position: Position of the token.
    :param chunk_tokens: Number of tokens of a chunk.
    :returns: The chunk; -1 for none.
    """
    return (position + 1) // chunk_tokens - 1


class NeighbourEncoder(nn.Module):
    """A bidirectional Transformer over the tokens of a neighbour and its continuation.

    Differs from the paper: it does not attend to the chunk that is continued.

    :param config: The sizes.
    """

    def __init__(self, config: RetroConfig) -> None:
        super().__init__()
        self.positions = nn.Parameter(
            INITIAL_SCALE * torch.randn(config.max_neighbour_tokens, config.dim)
        )
        self.enter = nn.LayerNorm(config.dim)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                config.dim,
                config.num_heads,
                2 * config.dim,
                dropout=0.0,
                activation="gelu",
                batch_first=True,
                norm_first=True,
            )
            for _ in range(config.encoder_layers)
        )
        self.leave = nn.LayerNorm(config.dim)

    def forward(self, embeddings: Tensor, mask: Tensor) -> Tensor:
        """Encode neighbours.

        :param embeddings: Token embeddings. *Shape:* ``(num_neighbours, neighbour_len, dim)``
        :param mask: What is no padding. *Shape:* ``(num_neighbours, neighbour_len)``
        :returns: *Shape:* ``(num_neighbours, neighbour_len, dim)``
        """
        states = self.enter(embeddings) + self.positions[: embeddings.shape[1]]
        hidden = ~mask
        hidden[:, 0] = False  # a neighbour without a token still needs something to attend to
        for layer in self.layers:
            states = layer(states, src_key_padding_mask=hidden)
        found: Tensor = self.leave(states)
        return found


class CrossAttention(nn.Module):
    """Attention of tokens to the neighbours of the chunk before them, behind a gate.

    The gate begins at 0, so that an adapter that was not trained changes nothing.

    :param dim: Width of hidden states.
    :param num_heads: Number of heads.
    """

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.norm = nn.LayerNorm(dim)
        self.query = nn.Linear(dim, dim, bias=False)
        self.key_value = nn.Linear(dim, 2 * dim, bias=False)
        self.output = nn.Linear(dim, dim, bias=False)
        self.gate = nn.Parameter(torch.zeros(1))

    def forward(self, hidden: Tensor, memory: Memory) -> Tensor:
        """Attend.

        :param hidden: Hidden states of the tokens of a pass. *Shape:* ``(num_tokens, dim)``
        :param memory: What each of them sees.
        :returns: What is added to them; 0 for tokens that see nothing. *Shape:* ``(num_tokens,
            dim)``
        """
        seen = (memory.token_memories >= 0).nonzero().squeeze(1)
        update = torch.zeros_like(hidden)
        if len(seen) == 0:
            return update
        owner = memory.token_memories[seen]
        order = torch.argsort(owner, stable=True)
        seen, owner = seen[order], owner[order]
        counts = torch.bincount(owner, minlength=len(memory.states))
        slots = torch.arange(len(owner), device=owner.device) - (counts.cumsum(0) - counts)[owner]
        queries = hidden.new_zeros(len(memory.states), int(counts.max()), hidden.shape[1])
        queries[owner, slots] = self.query(self.norm(hidden[seen]))
        keys, values = self.key_value(memory.states).chunk(2, dim=-1)
        attended = nn.functional.scaled_dot_product_attention(
            self._split(queries),
            self._split(keys),
            self._split(values),
            attn_mask=memory.mask[:, None, None, :],
        )
        joined = attended.transpose(1, 2).flatten(2)[owner, slots]  # (num_seen, dim)
        update[seen] = torch.tanh(self.gate) * self.output(joined)
        return update

    def _split(self, states: Tensor) -> Tensor:
        # (batch, length, dim) -> (batch, num_heads, length, head_dim)
        batch, length, dim = states.shape
        return states.view(batch, length, self.num_heads, dim // self.num_heads).transpose(1, 2)


class RetroAdapter(nn.Module):
    """Cross-attention after some layers of a frozen prefix encoder ("RETRO-fitting").

    Differs from the paper: the cross-attention follows a whole layer instead of its
    self-attention, and the layers of the prefix encoder stay as they were.

    :param config: The sizes.
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

    def attach(self, layers: Sequence[nn.Module]) -> list[RemovableHandle]:
        """Put the cross-attention behind layers of a prefix encoder.

        :param layers: All its layers.
        :returns: Handles that undo it.
        """
        return [
            layers[layer].register_forward_hook(self._make_hook(str(layer)))
            for layer in self.config.cross_layers
        ]

    def set_memory(self, memory: Memory | None) -> None:
        """Say what the next pass sees.

        :param memory: The memory; None for nothing.
        """
        self._memory = memory

    def encode(self, embeddings: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Encode the neighbours of chunks.

        :param embeddings: Token embeddings. *Shape:* ``(num_chunks, num_neighbours,
            neighbour_len, dim)``
        :param mask: What is no padding. *Shape:* ``(num_chunks, num_neighbours, neighbour_len)``
        :returns: States of *Shape:* ``(num_chunks, num_neighbours * neighbour_len, dim)`` and
            their mask
        """
        states = self.encoder(embeddings.flatten(0, 1), mask.flatten(0, 1))
        return states.unflatten(0, mask.shape[:2]).flatten(1, 2), mask.flatten(1, 2)

    def _make_hook(self, layer: str):  # type: ignore[no-untyped-def]  # noqa: ANN202
        def hook(_module: nn.Module, _inputs: object, output: object) -> object:
            memory = self._memory
            if memory is None or len(memory.states) == 0:
                return output
            hidden = output[0] if isinstance(output, tuple) else output
            assert isinstance(hidden, Tensor)
            flat = hidden.reshape(-1, hidden.shape[-1])
            update = self.cross[layer](flat.to(memory.states.dtype), memory)
            changed = hidden + update.to(hidden.dtype).reshape(hidden.shape)
            return (changed, *output[1:]) if isinstance(output, tuple) else changed

        return hook
