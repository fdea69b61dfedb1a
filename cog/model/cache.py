"""The key-value cache of prefixes that come and go, and the attention that reads it.

Tokens of all prefixes are packed into one row, so linear layers never compute padding; only
attention, which is cheap, lays them out by prefix. The new tokens of a prefix may branch: several
of them may follow the same one, and see nothing of each other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod

import numpy as np
import torch
from torch import Tensor, nn

ATTENTION_NAME = "cog_packed"  # under which transformers finds packed_attention
Branches = Mapping[int, Sequence[int]]  # parent of each new token, -1 for the prefix, by row
NO_BRANCHES: Branches = {}
FEWEST_QUERIES = 4  # products of fewer rows depend on the number of threads in their last bits
PART_COST = 1000  # of attending apart, in pairs of a query and a key


@dataclass(frozen=True, slots=True)
class Part:
    """Prefixes whose new tokens attend together, padded to the same numbers of queries and keys."""

    first: int  # of them in the cache
    end: int  # one past the last; those between that are in another part add only padding
    tokens: Tensor | None  # (num_tokens,) theirs in the packed pass; None for all
    # (num_tokens,) prefix of each, counted from `first`; None where every prefix has `max_new` of
    # them, so that packed and padded layouts are the same
    rows: Tensor | None
    slots: Tensor | None  # (num_tokens,) place of each among the new ones of its prefix; likewise
    max_new: int  # largest number of new tokens of a prefix
    max_len: int  # largest length of a prefix, new tokens included
    mask: Tensor | None  # (batch, 1, max_new, max_len) which keys a query may see; None if all


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the tokens of one packed pass belong."""

    rows: Tensor  # (num_tokens,) prefix of each
    positions: Tensor  # (num_tokens,) position of each in its text
    slots: Tensor  # (num_tokens,) place of each in the cache, another one where texts branch
    counts: tuple[int, ...]  # number of new tokens per prefix
    parts: tuple[Part, ...]  # what attends together; every prefix that gets tokens is in one


class PrefixCache:
    """Keys and values of prefixes that come and go; each can be appended to and cut on its own.

    A prefix that comes takes the place behind the others, and when one goes the last takes its
    place: nothing else is copied. The capacity, in positions, grows by doubling.
    """

    def __init__(self, *, batch: int, capacity: int, device: torch.device) -> None:
        self.lengths = [0] * batch
        self._room = (batch, capacity)  # prefixes and positions there is memory for
        self._wanted = 0  # positions that a prefix which came is going to have
        self._device = device
        self._layers: list[tuple[Tensor, Tensor]] = []
        self._layout: Layout | None = None

    @property
    def num_rows(self) -> int:
        """Number of prefixes there is memory for."""
        return self._room[0]

    def plan(self, counts: Sequence[int], branches: Branches = NO_BRANCHES) -> Layout:
        """Lay out the next pass and make room for it.

        Counts are of the tokens that each prefix gets, 0 for those that sit this pass out. Of
        prefixes whose new tokens are no chain, branches say what each of these follows.
        """
        rows = [row for row, count in enumerate(counts) for _ in range(count)]
        chains = [range(length, length + n) for length, n in zip(self.lengths, counts, strict=True)]
        depths = [
            _count_depths(branches[row]) if row in branches else range(count)
            for row, count in enumerate(counts)
        ]
        positions = [
            length + depth
            for length, own in zip(self.lengths, depths, strict=True)
            for depth in own
        ]
        slots = [slot for chain in chains for slot in chain]
        self._grow(max(slots) + 1)
        layout = Layout(
            rows=torch.tensor(rows, device=self._device),
            positions=torch.tensor(positions, device=self._device),
            slots=torch.tensor(slots, device=self._device),
            counts=tuple(counts),
            parts=tuple(
                self._make_part(counts, some, branches) for some in _split(counts, self.lengths)
            ),
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

    @torch.inference_mode()
    def keep(self, row: int, length: int, slots: Sequence[int]) -> None:
        """Forget the end of a prefix, but for some tokens of a branch, which become its end.

        Their places are ascending.
        """
        for slot in slots:
            if slot != length:
                for tensors in self._layers:
                    for tensor in tensors:
                        tensor[row, :, length] = tensor[row, :, slot]
            length += 1
        self.cut(row, length)

    def add(self, num_positions: int = 0) -> None:
        """Take in an empty prefix, behind the others, that will have so many tokens."""
        self.lengths.append(0)
        self._wanted = max(self._wanted, num_positions)

    @torch.inference_mode()
    def drop(self, row: int) -> None:
        """Drop a prefix; the last one takes its place."""
        last, length = len(self.lengths) - 1, self.lengths[-1]
        if row != last:
            for tensors in self._layers:
                for tensor in tensors:
                    tensor[row, :, :length] = tensor[last, :, :length]
        self.lengths[row] = length
        self.lengths.pop()

    def update(
        self,
        key_states: Tensor,
        value_states: Tensor,
        layer_idx: int,
        *_args: object,
        **_kwargs: object,
    ) -> tuple[Tensor, Tensor]:
        """Store one layer's new keys and values; transformers calls this from inside attention.

        Gives all keys and values there is memory for. *Shape:* twice ``(1, num_heads, num_tokens,
        head_dim)`` to twice ``(room, num_heads, capacity, head_dim)``
        """
        layout = self._layout
        assert layout is not None
        if layer_idx == len(self._layers):
            shape = (self._room[0], key_states.shape[1], self._room[1], key_states.shape[3])
            self._layers.append((_make_zeros(key_states, shape), _make_zeros(value_states, shape)))
        keys, values = self._layers[layer_idx]
        if len(self.lengths) == 1:
            new = slice(self.lengths[0], self.lengths[0] + layout.counts[0])
            keys[:1, :, new] = key_states
            values[:1, :, new] = value_states
        else:
            keys[layout.rows, :, layout.slots] = key_states[0].transpose(0, 1)
            values[layout.rows, :, layout.slots] = value_states[0].transpose(0, 1)
        return keys, values

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Length of the longest prefix; part of what transformers asks of a cache."""
        return max(self.lengths)

    def _grow(self, num_positions: int) -> None:
        if num_positions > self._room[1]:  # once, for all of the texts that are there
            num_positions = max(num_positions, self._wanted)
        wanted = len(self.lengths), num_positions
        room = tuple(
            old if old >= new else max(new, 2 * old)
            for old, new in zip(self._room, wanted, strict=True)
        )
        if room == self._room:
            return
        # layer by layer, so that only one is held twice; where memory gives out, the next pass
        # goes on with what has not grown yet
        for number, (keys, values) in enumerate(self._layers):
            self._layers[number] = (self._move(keys, *room), self._move(values, *room))
        self._room = (room[0], room[1])

    def _move(self, old: Tensor, num_rows: int, num_positions: int) -> Tensor:
        grown = _make_zeros(old, (num_rows, old.shape[1], num_positions, old.shape[3]))
        for row, length in enumerate(self.lengths[: len(old)]):
            grown[row, :, :length] = old[row, :, :length]
        return grown

    def _make_part(self, counts: Sequence[int], some: Sequence[int], branches: Branches) -> Part:
        first, end = some[0], some[-1] + 1
        own = [counts[row] if row in some else 0 for row in range(first, end)]
        max_new = max(own)
        max_len = max(self.lengths[row] + counts[row] for row in some)
        lengths = self.lengths[first:end]
        mask = None
        if max_new > 1 or any(length + 1 != max_len for length in lengths):
            query = torch.tensor(lengths).view(-1, 1, 1, 1) + torch.arange(max_new).view(
                1, 1, -1, 1
            )
            mask = torch.arange(max_len).view(1, 1, 1, -1) <= query
            for row in branches.keys() & some:
                new = slice(self.lengths[row], self.lengths[row] + counts[row])
                mask[row - first, 0, : counts[row], new] = _find_seen(branches[row])
            mask = mask.to(self._device)
        tokens = rows = slots = None
        if sum(own) < sum(counts):
            begins = accumulate(counts, initial=0)
            of_rows = [range(b, b + n) for b, n in zip(begins, counts, strict=False)]
            tokens = torch.tensor([i for row in some for i in of_rows[row]], device=self._device)
        if any(count != max_new for count in own):
            rows = torch.tensor([row - first for row in some for _ in range(counts[row])])
            slots = torch.tensor([slot for row in some for slot in range(counts[row])])
            rows, slots = rows.to(self._device), slots.to(self._device)
        return Part(first, end, tokens, rows, slots, max_new, max_len, mask)


def _make_zeros(like: Tensor, shape: tuple[int, ...]) -> Tensor:
    # on a CPU memory of zeros is only taken where it is written to; torch writes to all of it
    if like.device.type != "cpu":
        return like.new_zeros(shape)
    size = prod(shape) * like.element_size()
    return torch.from_numpy(np.zeros(size, dtype=np.uint8)).view(like.dtype).view(shape)


def _count_depths(parents: Sequence[int]) -> list[int]:
    # how many new tokens stand before each
    depths: list[int] = []
    for parent in parents:
        depths.append(depths[parent] + 1 if parent >= 0 else 0)
    return depths


def _find_seen(parents: Sequence[int]) -> Tensor:
    # which new tokens each sees: those that it follows, and itself. (count, count)
    seen = torch.eye(len(parents), dtype=torch.bool)
    for token, parent in enumerate(parents):
        if parent >= 0:
            seen[token] |= seen[parent]
    return seen


def _split(counts: Sequence[int], lengths: Sequence[int]) -> list[list[int]]:
    # which prefixes attend together: one that would make all others much longer attends alone
    together = [row for row, count in enumerate(counts) if count]
    parts: list[list[int]] = []

    def cost(rows: Sequence[int]) -> int:
        num_queries = max((counts[row] for row in rows), default=0)
        num_keys = max((lengths[row] + counts[row] for row in rows), default=0)
        return (PART_COST + (rows[-1] + 1 - rows[0]) * num_queries * num_keys) if rows else 0

    while len(together) > 1:
        found = cost(together)
        widest = max(together, key=lambda row: counts[row])
        longest = max(together, key=lambda row: lengths[row] + counts[row])
        apart = [[row for row in together if row != one] for one in (widest, longest)]
        saved = [
            found - cost(rest) - cost([one])
            for rest, one in zip(apart, (widest, longest), strict=True)
        ]
        best = int(saved[1] > saved[0])
        if saved[best] <= 0:
            break
        parts.append([(widest, longest)[best]])
        together = apart[best]
    return [together, *parts]


def packed_attention(
    _module: nn.Module | None,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    _attention_mask: Tensor | None,
    *,
    layout: Layout,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_kwargs: object,
) -> tuple[Tensor, None]:
    """Attend from packed new tokens to the cached keys of their own prefix.

    Called by transformers too, whose mask is not used: the layout says what is seen. The factor of
    the scores (``scaling``) is ``head_dim ** -0.5`` unless told. Gives None for the weights. To cap
    scores (``softcap``), or to add to them (``s_aux``), is a ``ValueError``.

    *Shape:* queries ``(1, num_heads, num_tokens, head_dim)``, all keys and all values ``(room,
    num_key_heads, capacity, head_dim)`` to ``(1, num_tokens, num_heads, head_dim)``
    """
    if softcap is not None or s_aux is not None:
        raise ValueError("attention with capped scores, or with sinks")
    packed = query[0].transpose(0, 1)  # (num_tokens, num_heads, head_dim)
    outputs = []
    for part in layout.parts:
        own = packed if part.tokens is None else packed.index_select(0, part.tokens)
        output = _attend(own, key, value, part, scaling=scaling)
        if part.tokens is None:
            return output.unsqueeze(0), None
        outputs.append(output)
    order = torch.cat([part.tokens for part in layout.parts if part.tokens is not None])
    joined = torch.empty_like(packed)
    joined[order] = torch.cat(outputs)
    return joined.unsqueeze(0), None


def _attend(
    packed: Tensor, key: Tensor, value: Tensor, part: Part, *, scaling: float | None
) -> Tensor:
    # packed: (num_tokens, num_heads, head_dim), and so is what comes out
    _, num_heads, head_dim = packed.shape
    batch, num_key_heads = part.end - part.first, key.shape[1]
    groups = num_heads // num_key_heads
    if part.rows is None:
        padded = packed.reshape(batch, part.max_new, num_heads, head_dim)
    else:
        padded = packed.new_zeros(batch, part.max_new, num_heads, head_dim)
        padded[part.rows, part.slots] = packed
    padded = padded.transpose(1, 2)  # (batch, num_heads, max_new, head_dim)
    # heads that share a key head become further queries of it, so keys are never repeated
    grouped = padded.reshape(batch, num_key_heads, groups * part.max_new, head_dim)
    mask = part.mask
    if mask is not None and groups > 1:
        mask = mask.repeat(1, 1, groups, 1)
    num_queries = grouped.shape[2]
    if num_queries < FEWEST_QUERIES and grouped.device.type == "cpu":
        missing = FEWEST_QUERIES - num_queries
        grouped = nn.functional.pad(grouped, (0, 0, 0, missing))
        mask = None if mask is None else nn.functional.pad(mask, (0, 0, 0, missing), value=True)
    output = nn.functional.scaled_dot_product_attention(
        grouped,
        key[part.first : part.end, :, : part.max_len],
        value[part.first : part.end, :, : part.max_len],
        attn_mask=mask,
        scale=scaling,
    )
    output = output[:, :, :num_queries].reshape(batch, num_heads, part.max_new, head_dim)
    output = output.transpose(1, 2)
    if part.rows is None:
        return output.reshape(batch * part.max_new, num_heads, head_dim)
    return output[part.rows, part.slots]
