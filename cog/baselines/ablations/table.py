"""The whole table in blocks: an index goes in, all its words and phrases stream out."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cog.baselines.ablations.generators import UnsummedPools
from cog.decoding.pool import Pool
from cog.decoding.request import Request
from cog.decoding.scoring import FloatScorer
from cog.index.union_index import AnyIndex
from cog.model.load import CogModel

BUCKET_BITS = 18
NUM_BUCKETS = 1 << BUCKET_BITS
BYTES_PER_PHRASE = 28  # first and last word, first token, key and bucket


@dataclass(frozen=True, slots=True)
class TableLimits:
    """How much of the table is in memory.

    :param chunks_per_block: Number of chunks scored together.
    :param kept_bytes: Bytes of blocks that are kept between steps; the others are read anew.
    """

    chunks_per_block: int = 1024
    kept_bytes: int = 1 << 30


@dataclass(frozen=True, slots=True)
class Block:
    """Some chunks of the table.

    :param pool: Their words, and their phrases, each on its own.
    :param keys: Hash of the text of each phrase. *Shape:* ``(num_phrases,)`` uint64
    :param buckets: Some bits of it. *Shape:* ``(num_phrases,)`` int64
    """

    pool: Pool
    keys: NDArray[np.uint64]
    buckets: Tensor

    @property
    def num_bytes(self) -> int:
        """Memory of the block.

        :returns: Bytes.
        """
        chunks, restored = self.pool.chunks, 0
        if isinstance(self.pool.scorer, FloatScorer):
            restored = 4 * (chunks.start_vectors.size + chunks.end_vectors.size)
        return self.pool.num_bytes + restored + BYTES_PER_PHRASE * len(self.keys)


class Table(UnsummedPools):
    """All chunks of an index, block by block; nothing is retrieved.

    :param model: The model.
    :param index: The open index.
    :param allowed_chunks: Chunks that may be copied from; None for all. *Shape:*
        ``(num_chunks,)``
    """

    limits: ClassVar[TableLimits] = TableLimits()

    def __init__(
        self, model: CogModel, index: AnyIndex, *, allowed_chunks: NDArray[np.bool_] | None
    ) -> None:
        super().__init__(model, index, allowed_chunks=allowed_chunks)
        ids = np.arange(index.num_chunks, dtype=np.int64)
        ids = ids if allowed_chunks is None else ids[allowed_chunks]
        size = self.limits.chunks_per_block
        self._parts = [ids[first : first + size] for first in range(0, len(ids), size)]
        self._kept: dict[int, Block] = {}
        self._room = self.limits.kept_bytes

    def make_pools(self, requests: Sequence[Request]) -> tuple[list[Pool], dict[str, float]]:
        """Make empty pools: what may be copied is the table, whatever the prefix.

        :param requests: The requests.
        :returns: Pools in the order of the requests, and the seconds of ``retrieve`` and
            ``gather``; the table's own are part of decoding.
        """
        began = time.perf_counter()
        nothing = self.make_pool(self.index.gather_chunks(np.zeros(0, dtype=np.int64)))
        seconds = {"retrieve": 0.0, "gather": time.perf_counter() - began}
        return [nothing for _ in requests], seconds

    def iter_blocks(self) -> Iterator[tuple[int, Block]]:
        """Read the table once.

        :yields: Number of a block, and the block.
        """
        for number in range(len(self._parts)):
            yield number, self.get_block(number)

    def get_block(self, number: int) -> Block:
        """Read one block, or take it from memory.

        :param number: Its number.
        :returns: The block.
        """
        if number in self._kept:
            return self._kept[number]
        chunks = self.index.gather_chunks(self._parts[number])
        keys = self.list_phrases(chunks).keys
        buckets = (keys >> np.uint64(64 - BUCKET_BITS)).astype(np.int64)
        device = self.model.prefix_encoder.device
        block = Block(self.make_pool(chunks), keys, torch.from_numpy(buckets).to(device))
        if block.num_bytes <= self._room:
            self._room -= block.num_bytes
            self._kept[number] = block
        return block
