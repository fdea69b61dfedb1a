"""RETRO: a model, an adapter and an index go in, texts whose neighbours are refreshed come out."""

import time
from collections.abc import Sequence
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from cog.baselines.retro.adapter import Memory, Placement, RetroAdapter, find_layers, get_chunk
from cog.baselines.retro.neighbours import NeighbourSource, lay_out, read_chunk
from cog.baselines.token_loop import TokenLoop
from cog.baselines.transformer import TransformerGenerator
from cog.decoding.request import Request
from cog.index.read.reader import PhraseIndex
from cog.model.cache import PrefixCache
from cog.model.load import CogModel
from cog.records import Generation


class RetroMemory:
    """The neighbours that the texts of a batch see now: those of the last chunk of each.

    Keys and values of all layers are made when a chunk ends and kept until the next one does, in
    tensors of one row per text.
    """

    def __init__(
        self, model: CogModel, adapter: RetroAdapter, source: NeighbourSource, *, batch: int
    ) -> None:
        self._model, self._adapter, self._source = model, adapter, source
        self._size = adapter.config.chunk_tokens
        self._device = model.prefix_encoder.device
        self._ids: list[list[int]] = [[] for _ in range(batch)]
        self._chunks = [-1] * batch  # what each text sees
        self._kept: list[Tensor] = []  # keys and values in turn, layer by layer
        self._mask = torch.zeros(batch, 0, dtype=torch.bool, device=self._device)
        self._last: tuple[tuple[int, ...], Placement] | None = None
        self.seconds = 0.0

    def count_room(self, row: int) -> int:
        """Number of tokens of a text that see the same as its next one does."""
        return self._size - (len(self._ids[row]) + 1) % self._size

    def read(self, token_ids: Sequence[Sequence[int]]) -> Memory | None:
        """Take in the tokens of the next pass, at most :meth:`count_room` per text.

        Gives what each of them sees, None for nothing; where a chunk has ended neighbours are
        found.
        """
        began = time.perf_counter()
        ended = []
        for row, new in enumerate(token_ids):
            if not new:
                continue
            chunk = get_chunk(len(self._ids[row]), chunk_tokens=self._size)
            self._ids[row].extend(new)
            if chunk > self._chunks[row]:
                self._chunks[row] = chunk
                ended.append(row)
        if ended:
            self._refresh(ended)
        memory = self._place(tuple(map(len, token_ids)))
        self.seconds += time.perf_counter() - began
        return memory

    @torch.inference_mode()
    def _refresh(self, rows: list[int]) -> None:
        texts = []
        for row in rows:
            first = self._chunks[row] * self._size
            ids = self._ids[row][first : first + self._size]
            begin = self._model.prefix_encoder.begin_token_id
            texts.append(read_chunk(self._model.splitter, ids, begin_token_id=begin))
        found = self._source.find(texts)
        neighbours = lay_out(found, self._source.read(found)).to(self._device)
        embed = self._model.prefix_encoder.get_modules().get_input_embeddings()
        pairs = self._adapter.encode(embed(neighbours.token_ids).float(), neighbours)
        found_now = list(chain.from_iterable(pairs))
        self._make_room(found_now)
        index = torch.tensor(rows, device=self._device)
        length = neighbours.memory_mask.shape[1]
        for kept, new in zip(self._kept, found_now, strict=True):
            kept[index, :, :length] = new
        self._mask[index, :length] = neighbours.memory_mask
        self._mask[index, length:] = False

    def _make_room(self, wanted: Sequence[Tensor]) -> None:
        # as long as the longest memory so far
        batch, length = self._mask.shape
        more = wanted[0].shape[2] - length
        if more > 0:
            empty = [each.new_zeros(batch, each.shape[1], 0, each.shape[3]) for each in wanted]
            self._kept = [pad(each, (0, 0, 0, more)) for each in self._kept or empty]
            self._mask = pad(self._mask, (0, more))

    def _place(self, counts: tuple[int, ...]) -> Memory | None:
        if not self._kept:
            return None
        owners = tuple(
            row if self._chunks[row] >= 0 else -1
            for row, count in enumerate(counts)
            for _ in range(count)
        )
        if self._last is None or self._last[0] != owners:
            placement = Placement.make(
                np.array(owners, dtype=np.int64), num_memories=len(counts), device=self._device
            )
            self._last = owners, placement
        pairs = zip(self._kept[::2], self._kept[1::2], strict=True)
        return Memory(tuple(pairs), self._mask, self._last[1])


class RetroLoop(TokenLoop):
    """The token loop with neighbours, refreshed whenever a chunk has ended.

    The model is loaded with its modules, and the adapter stays attached to it.
    """

    def __init__(self, model: CogModel, adapter: RetroAdapter, source: NeighbourSource) -> None:
        super().__init__(model)
        self._adapter = adapter.to(model.prefix_encoder.device).eval()
        self._source = source
        adapter.attach(find_layers(model.prefix_encoder.get_modules()))
        self.memory: RetroMemory | None = None

    def begin(self, batch: int) -> None:
        """Forget the neighbours of the batch before."""
        self.memory = RetroMemory(self.model, self._adapter, self._source, batch=batch)

    def append(self, cache: PrefixCache, token_ids: Sequence[Sequence[int]]) -> Tensor:
        """Append tokens that see the neighbours of the chunk before them.

        A pass ends for a text where its neighbours change.
        """
        return torch.cat([state for row in self._append(cache, token_ids) for state in row])

    def append_last(self, cache: PrefixCache, token_ids: Sequence[Sequence[int]]) -> Tensor:
        """As :meth:`append`, but the states at the last tokens only."""
        return torch.stack([row[-1][-1] for row in self._append(cache, token_ids) if row])

    def _append(self, cache: PrefixCache, token_ids: Sequence[Sequence[int]]) -> list[list[Tensor]]:
        # states of each text, pass by pass
        assert self.memory is not None
        left = [list(ids) for ids in token_ids]
        found: list[list[Tensor]] = [[] for _ in left]
        try:
            while any(left):
                rooms = [self.memory.count_room(row) for row in range(len(left))]
                blocks = [ids[:room] for ids, room in zip(left, rooms, strict=True)]
                left = [ids[room:] for ids, room in zip(left, rooms, strict=True)]
                self._adapter.set_memory(self.memory.read(blocks))
                states = self.model.prefix_encoder.append(cache, blocks)
                parts = torch.split(states, [len(block) for block in blocks])
                for row, part in zip(found, parts, strict=True):
                    if len(part):
                        row.append(part)
        finally:
            self._adapter.set_memory(None)
        return found


class RetroGenerator(TransformerGenerator):
    """The RETRO baseline (Borgeaud et al. 2022), as an adapter of the model's prefix encoder."""

    def __init__(self, model: CogModel, index: PhraseIndex, *, adapter: RetroAdapter) -> None:
        source = NeighbourSource(index, model, config=adapter.config)
        self._retro = RetroLoop(model, adapter, source)
        super().__init__(model, corpus_id=index.corpus, index=index.digest, loop=self._retro)

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        """Write a batch; to find and to encode neighbours is ``retrieve``."""
        self._retro.begin(len(requests))
        return super().generate(requests)

    def score_tokens(self, request: Request, token_ids: NDArray[np.int32]) -> NDArray[np.float64]:
        """Score a text, whose neighbours are refreshed as if it were written."""
        self._retro.begin(1)
        return super().score_tokens(request, token_ids)

    def blend(self, _states: Tensor, weights: Tensor) -> Tensor:
        """Leave the distribution, and take note of the time that neighbours took so far."""
        assert self._retro.memory is not None
        self.searched_seconds = self._retro.memory.seconds
        return weights
