"""The key-value cache of a batch of prefixes of different lengths, and the attention that reads it.

Tokens of all prefixes are packed into one row, so linear layers never compute padding; only
attention, which is cheap, lays them out by prefix.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

ATTENTION_NAME = "cog_packed"  # under which transformers finds packed_attention


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the tokens of one packed pass belong.

    :param rows: Prefix of each token. *Shape:* ``(num_tokens,)``
    :param slots: Place of each token among the new ones of its prefix. *Shape:* ``(num_tokens,)``
    :param positions: Position of each token in its prefix. *Shape:* ``(num_tokens,)``
    :param counts: Number of new tokens per prefix.
    :param max_new: Largest number of new tokens of a prefix.
    :param max_len: Largest length of a prefix, new tokens included.
    :param mask: Which keys a query may see; None if all. *Shape:* ``(batch, 1, max_new, max_len)``
    """

    rows: Tensor
    slots: Tensor
    positions: Tensor
    counts: tuple[int, ...]
    max_new: int
    max_len: int
    mask: Tensor | None

    @property
    def is_dense(self) -> bool:
        """Whether every prefix gets the same number of tokens, so that no scatter is needed."""
        return all(count == self.max_new for count in self.counts)


class PrefixCache:
    """Keys and values of a batch of prefixes; each can be appended to and cut on its own.

    :param batch: Number of prefixes.
    :param capacity: Number of positions to begin with; grows by doubling.
    :param device: Where the tensors lie.
    """

    def __init__(self, *, batch: int, capacity: int, device: torch.device) -> None:
        self.lengths = [0] * batch
        self._capacity = capacity
        self._device = device
        self._layers: list[tuple[Tensor, Tensor]] = []
        self._layout: Layout | None = None

    def plan(self, counts: Sequence[int]) -> Layout:
        """Lay out the next pass and make room for it.

        :param counts: Number of tokens that each prefix gets; 0 for prefixes that sit this pass
            out.
        :returns: The layout.
        """
        rows = [row for row, count in enumerate(counts) for _ in range(count)]
        slots = [slot for count in counts for slot in range(count)]
        positions = [self.lengths[row] + slot for row, slot in zip(rows, slots, strict=True)]
        max_new = max(counts)
        max_len = max(length + count for length, count in zip(self.lengths, counts, strict=True))
        self._grow(max_len)
        mask = None
        if max_new > 1 or any(length + 1 != max_len for length in self.lengths):
            query = torch.tensor(self.lengths).view(-1, 1, 1, 1) + torch.arange(max_new).view(
                1, 1, -1, 1
            )
            mask = (torch.arange(max_len).view(1, 1, 1, -1) <= query).to(self._device)
        layout = Layout(
            rows=torch.tensor(rows, device=self._device),
            slots=torch.tensor(slots, device=self._device),
            positions=torch.tensor(positions, device=self._device),
            counts=tuple(counts),
            max_new=max_new,
            max_len=max_len,
            mask=mask,
        )
        self._layout = layout
        return layout

    def commit(self) -> None:
        """Count the tokens of the last pass in."""
        assert self._layout is not None
        self.lengths = [a + b for a, b in zip(self.lengths, self._layout.counts, strict=True)]

    def cut(self, row: int, length: int) -> None:
        """Forget the end of a prefix, as if it had never been appended.

        Raises ``ValueError`` if the prefix is shorter.
        """
        if not 0 <= length <= self.lengths[row]:
            raise ValueError(f"cannot cut a prefix of {self.lengths[row]} tokens to {length}")
        self.lengths[row] = length

    def keep(self, rows: Sequence[int]) -> None:
        """Drop every prefix but some.

        :param rows: The prefixes kept, in their new order.
        """
        index = torch.tensor(list(rows), device=self._device)
        self._layers = [(keys[index], values[index]) for keys, values in self._layers]
        self.lengths = [self.lengths[row] for row in rows]

    def update(
        self,
        key_states: Tensor,
        value_states: Tensor,
        layer_idx: int,
        *_args: object,
        **_kwargs: object,
    ) -> tuple[Tensor, Tensor]:
        """Store one layer's new keys and values; transformers calls this from inside attention.

        :param key_states: *Shape:* ``(1, num_heads, num_tokens, head_dim)``
        :param value_states: *Shape:* ``(1, num_heads, num_tokens, head_dim)``
        :param layer_idx: The layer.
        :param *_args: What else transformers passes; not used.
        :param **_kwargs: What else transformers passes; not used.
        :returns: All keys and values up to the longest prefix. *Shape:* ``(batch, num_heads,
            max_len, head_dim)``
        """
        layout = self._layout
        assert layout is not None
        if layer_idx == len(self._layers):
            shape = (len(self.lengths), key_states.shape[1], self._capacity, key_states.shape[3])
            self._layers.append((key_states.new_zeros(shape), value_states.new_zeros(shape)))
        keys, values = self._layers[layer_idx]
        if len(self.lengths) == 1:
            new = slice(layout.max_len - layout.max_new, layout.max_len)
            keys[:, :, new] = key_states
            values[:, :, new] = value_states
        else:
            keys[layout.rows, :, layout.positions] = key_states[0].transpose(0, 1)
            values[layout.rows, :, layout.positions] = value_states[0].transpose(0, 1)
        return keys[:, :, : layout.max_len], values[:, :, : layout.max_len]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Length of the longest prefix; part of what transformers asks of a cache.

        :param layer_idx: The layer; all are equal.
        :returns: Number of tokens.
        """
        return max(self.lengths)

    def _grow(self, wanted: int) -> None:
        if wanted <= self._capacity:
            return
        self._capacity = max(wanted, 2 * self._capacity)
        grown = []
        for keys, values in self._layers:
            shape = (*keys.shape[:2], self._capacity, keys.shape[3])
            pair = keys.new_zeros(shape), values.new_zeros(shape)
            for new, old in zip(pair, (keys, values), strict=True):
                new[:, :, : old.shape[2]] = old
            grown.append(pair)
        self._layers = grown


def packed_attention(
    _module: nn.Module | None,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    _attention_mask: Tensor | None,
    *,
    layout: Layout,
    scaling: float | None = None,
    **_kwargs: object,
) -> tuple[Tensor, None]:
    """Attend from packed new tokens to the cached keys of their own prefix.

    :param _module: The attention layer.
    :param query: *Shape:* ``(1, num_heads, num_tokens, head_dim)``
    :param key: *Shape:* ``(batch, num_key_heads, max_len, head_dim)``
    :param value: *Shape:* ``(batch, num_key_heads, max_len, head_dim)``
    :param _attention_mask: Not used; the layout says what is seen.
    :param layout: Where the tokens belong.
    :param scaling: Factor of the scores; None for ``head_dim ** -0.5``.
    :param **_kwargs: What else transformers passes; not used.
    :returns: *Shape:* ``(1, num_tokens, num_heads, head_dim)``, and None for the weights.
    """
    _, num_heads, _, head_dim = query.shape
    batch, num_key_heads = key.shape[:2]
    groups = num_heads // num_key_heads
    if layout.is_dense:
        padded = query[0].view(num_heads, batch, layout.max_new, head_dim).transpose(0, 1)
    else:
        padded = query.new_zeros(batch, layout.max_new, num_heads, head_dim)
        padded[layout.rows, layout.slots] = query[0].transpose(0, 1)
        padded = padded.transpose(1, 2)  # (batch, num_heads, max_new, head_dim)
    # heads that share a key head become further queries of it, so keys are never repeated
    grouped = padded.reshape(batch, num_key_heads, groups * layout.max_new, head_dim)
    mask = layout.mask
    if mask is not None and groups > 1:
        mask = mask.repeat(1, 1, groups, 1)
    output = nn.functional.scaled_dot_product_attention(
        grouped, key, value, attn_mask=mask, scale=scaling
    )
    output = output.reshape(batch, num_heads, layout.max_new, head_dim).transpose(1, 2)
    if layout.is_dense:
        return output.reshape(1, batch * layout.max_new, num_heads, head_dim), None
    return output[layout.rows, layout.slots].unsqueeze(0), None
