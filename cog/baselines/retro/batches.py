"""Training batches of the adapter: the number of a batch goes in, its windows come out.

A batch is a pure function of the seed and its number, so that a run that goes on after a break
needs nothing but its step.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cog.baselines.retro.adapter import get_chunk
from cog.baselines.retro.examples import RetroExamples
from cog.baselines.retro.neighbours import Neighbours, lay_out
from cog.params import RetroParams
from cog.training.batches import pad_rows
from cog.training.sampler import BatchSampler, SamplerSettings

IGNORED = -100  # target of a position that does not count
MAX_POOLED = 8  # batches drawn together and sorted by length, so that little is padding


@dataclass(frozen=True, slots=True)
class RetroBatch:
    """Windows of documents, and what their tokens may see.

    The tokens of a window before the last one of its first chunk see no neighbours: they are only
    read. The others are learnt from.
    """

    number: int
    read_ids: Tensor  # (batch, chunk_tokens - 1)
    learnt_ids: Tensor  # (batch, learnt_len) the tokens after them, padded with 0
    targets: Tensor  # (batch, learnt_len) the token after each of those; IGNORED for padding
    neighbours: Neighbours | None  # of the chunks; None if they have none
    token_memories: NDArray[np.int64]  # (batch * learnt_len,) the chunk each sees; -1 for none
    documents: NDArray[np.int64]  # (batch,)

    @property
    def num_tokens(self) -> int:
        """Number of tokens that are learnt from."""
        return int((self.targets != IGNORED).sum())


class RetroBatches:
    """Draws batches from some windows, each once in an order of its own, again and again."""

    def __init__(
        self, examples: RetroExamples, windows: NDArray[np.int64], settings: RetroParams
    ) -> None:
        self._examples, self._settings = examples, settings
        self._num_pooled = max(1, min(MAX_POOLED, len(windows) // settings.windows_per_batch))
        size = self._num_pooled * settings.windows_per_batch
        self._sampler = BatchSampler(
            windows,
            examples.documents[windows].astype(np.int32),
            None,
            settings=SamplerSettings(size, size, size, settings.seed),
        )

    def make(self, number: int) -> RetroBatch:
        """Make one batch; the same number gives the same batch, anywhere."""
        pool, place = divmod(number, self._num_pooled)
        drawn = self._sampler.draw(pool)
        lengths = np.diff(self._examples.window_offsets)[drawn]
        parts = np.array_split(drawn[np.argsort(lengths, kind="stable")], self._num_pooled)
        order = np.random.default_rng([self._settings.seed, 4, pool]).permutation(self._num_pooled)
        return self.assemble(number, parts[order[place]])

    def assemble(self, number: int, windows: NDArray[np.int64]) -> RetroBatch:
        """Lay windows out beside the neighbours of their chunks."""
        examples = self._examples
        rows = [examples.get_window(window) for window in windows.tolist()]
        found = [examples.get_neighbours(window) for window in windows.tolist()]
        neighbours = np.concatenate(found)
        has_some = (neighbours >= 0).any(axis=1)
        neighbours = neighbours[has_some]
        return lay_out_windows(
            number,
            rows,
            owners=np.where(has_some, np.cumsum(has_some) - 1, -1),
            neighbours=lay_out(neighbours, examples.read(neighbours)) if len(neighbours) else None,
            documents=examples.documents[windows],
            chunk_tokens=self._settings.chunk_tokens,
        )


def lay_out_windows(
    number: int,
    rows: list[NDArray[np.int32]],
    *,
    owners: NDArray[np.int64],
    neighbours: Neighbours | None,
    documents: NDArray[np.int64],
    chunk_tokens: int,
) -> RetroBatch:
    """Lay windows of more than a chunk out; ``owners`` are the memories of chunks, or -1."""
    num_read = chunk_tokens - 1
    learnt, is_learnt = pad_rows([ids[num_read:-1] for ids in rows])
    targets, _ = pad_rows([ids[num_read + 1 :] for ids in rows])
    targets[~is_learnt] = IGNORED
    memories = np.full(learnt.shape, -1, dtype=np.int64)
    first = 0
    for row, ids in enumerate(rows):
        chunks = [get_chunk(p, chunk_tokens=chunk_tokens) for p in range(num_read, len(ids) - 1)]
        memories[row, : len(chunks)] = owners[first + np.array(chunks)]
        first += (len(ids) - 1) // chunk_tokens
    read = np.stack([ids[:num_read] for ids in rows]).astype(np.int64)
    tensors = [torch.from_numpy(each) for each in (read, learnt, targets)]
    read_ids, learnt_ids, next_ids = tensors
    return RetroBatch(
        number, read_ids, learnt_ids, next_ids, neighbours, memories.ravel(), documents
    )
