"""RETRO: a model, an adapter and an index go in, texts whose neighbours are refreshed come out."""

import time
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from cog.baselines.retro.adapter import Memory, RetroAdapter, get_chunk
from cog.baselines.retro.neighbours import NeighbourSource
from cog.baselines.token_loop import TokenLoop
from cog.baselines.transformer import describe_tokens
from cog.decoding.request import Request
from cog.index.reader import PhraseIndex
from cog.model.cache import PrefixCache
from cog.model.load import CogModel
from cog.model.prefix_encoder import PREFILL_TOKENS
from cog.records import Generation


class RetroMemory:
    """The neighbours that the texts of a batch have found so far.

    :param model: The model, whose embeddings the encoder of neighbours reads.
    :param adapter: The adapter.
    :param source: Finds neighbours.
    :param batch: Number of texts.
    """

    def __init__(
        self, model: CogModel, adapter: RetroAdapter, source: NeighbourSource, *, batch: int
    ) -> None:
        self._model = model
        self._adapter = adapter
        self._source = source
        self._ids: list[list[int]] = [[] for _ in range(batch)]
        self._encoded: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}
        self.seconds = 0.0

    def read(self, token_ids: Sequence[Sequence[int]]) -> Memory:
        """Take in the tokens of the next pass and say what each of them sees.

        :param token_ids: New tokens per text; may be empty.
        :returns: The memory of the pass; neighbours are retrieved where a chunk has ended.
        """
        began = time.perf_counter()
        size = self._adapter.config.chunk_tokens
        wanted: list[tuple[int, int]] = []  # text and chunk of each token
        for row, new in enumerate(token_ids):
            first = len(self._ids[row])
            self._ids[row].extend(new)
            wanted += [
                (row, get_chunk(position, chunk_tokens=size))
                for position in range(first, first + len(new))
            ]
        keys = sorted({key for key in wanted if key[1] >= 0})
        self._encode([key for key in keys if key not in self._encoded])
        for row, chunk in keys:  # what no later token can see is let go
            self._encoded.pop((row, chunk - 1), None) if (row, chunk - 1) not in keys else None
        memory = self._join(keys, wanted)
        self.seconds += time.perf_counter() - began
        return memory

    @torch.inference_mode()
    def _encode(self, keys: list[tuple[int, int]]) -> None:
        if not keys:
            return
        size, device = self._adapter.config.chunk_tokens, self._model.prefix_encoder.device
        texts = []
        for row, chunk in keys:
            ids = np.array(self._ids[row][chunk * size : (chunk + 1) * size], dtype=np.int32)
            if chunk == 0 and self._model.prefix_encoder.begin_token_id is not None:
                ids = ids[1:]
            texts.append(self._model.splitter.decode(ids).decode(errors="replace"))
        found = self._source.find(texts)
        embed = self._model.prefix_encoder.model.get_input_embeddings()
        embeddings = embed(found.token_ids.to(device)).float()
        states, mask = self._adapter.encode(embeddings, found.mask.to(device))
        for number, key in enumerate(keys):
            self._encoded[key] = states[number], mask[number]

    def _join(self, keys: list[tuple[int, int]], wanted: list[tuple[int, int]]) -> Memory:
        device = self._model.prefix_encoder.device
        number_of = {key: number for number, key in enumerate(keys)}
        token_memories = torch.tensor([number_of.get(key, -1) for key in wanted], device=device)
        if not keys:
            config = self._adapter.config
            return Memory(
                torch.zeros(0, 1, config.dim, device=device),
                torch.zeros(0, 1, dtype=torch.bool, device=device),
                token_memories,
            )
        states = torch.stack([self._encoded[key][0] for key in keys])
        mask = torch.stack([self._encoded[key][1] for key in keys])
        return Memory(states, mask, token_memories)


class RetroLoop(TokenLoop):
    """The token loop with neighbours, refreshed whenever a chunk has ended.

    :param model: The model; the adapter stays attached to it.
    :param adapter: The adapter.
    :param source: Finds neighbours.
    """

    def __init__(self, model: CogModel, adapter: RetroAdapter, source: NeighbourSource) -> None:
        super().__init__(model)
        self._adapter = adapter.to(model.prefix_encoder.device).eval()
        self._source = source
        body = model.prefix_encoder.model.base_model
        layers = getattr(body, "layers", None) or body.h
        assert isinstance(layers, nn.ModuleList)
        adapter.attach(list(layers))
        self.memory: RetroMemory | None = None

    def begin(self, batch: int) -> None:
        """Forget the neighbours of the batch before.

        :param batch: Number of texts.
        """
        self.memory = RetroMemory(self.model, self._adapter, self._source, batch=batch)

    def append_last(self, cache: PrefixCache, token_ids: Sequence[Sequence[int]]) -> Tensor:
        """Append tokens in one pass that sees the neighbours of the chunks before them.

        :param cache: The cache.
        :param token_ids: New tokens per text; may be empty for some.
        :returns: States at the last token of the texts that got some. *Shape:* ``(num_rows, dim)``
        """
        assert self.memory is not None
        longest = max(len(ids) for ids in token_ids)
        last: dict[int, Tensor] = {}
        try:
            for begin in range(0, longest, PREFILL_TOKENS):
                blocks = [list(ids[begin : begin + PREFILL_TOKENS]) for ids in token_ids]
                self._adapter.set_memory(self.memory.read(blocks))
                states = self.model.prefix_encoder.append(cache, blocks)
                ends = np.cumsum([len(block) for block in blocks])
                last |= {row: states[ends[row] - 1] for row, block in enumerate(blocks) if block}
        finally:
            self._adapter.set_memory(None)
        return torch.stack([last[row] for row in sorted(last)])


class RetroGenerator:
    """The RETRO baseline (Borgeaud et al. 2022), as an adapter of the model's prefix encoder.

    :param model: The model.
    :param index: The open index that neighbours come from.
    :param adapter: A trained adapter.
    """

    def __init__(self, model: CogModel, index: PhraseIndex, *, adapter: RetroAdapter) -> None:
        source = NeighbourSource(index, model.retriever, config=adapter.config)
        self._loop = RetroLoop(model, adapter, source)
        self._index = index

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        """Write a batch of texts together, token by token.

        :param requests: What to write; settings of phrases do not count.
        :returns: The texts; the seconds of ``retrieve`` are those of finding and encoding
            neighbours.
        :raises GenerationError: If a prefix or a setting cannot be used.
        """
        if not requests:
            return []
        self._loop.begin(len(requests))
        texts, seconds = self._loop.write(requests)
        assert self._loop.memory is not None
        retrieved = self._loop.memory.seconds
        shared = {
            "retrieve": round(retrieved / len(texts), 4),
            "gather": 0.0,
            "decode": round((seconds - retrieved) / len(texts), 4),
        }
        manifest = self._index.manifest
        return [
            describe_tokens(
                request,
                text,
                corpus_id=manifest.corpus,
                index=manifest.digest,
                model=self._loop.model.fingerprint,
                seconds=shared,
            )
            for request, text in zip(requests, texts, strict=True)
        ]
