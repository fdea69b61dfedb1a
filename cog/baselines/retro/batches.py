"""Training batches of the adapter: an open index goes in, windows and their neighbours come out."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cog.baselines.retro.adapter import RetroConfig, get_chunk
from cog.baselines.retro.neighbours import Neighbours, NeighbourSource
from cog.errors import TrainingError
from cog.index.reader import PhraseIndex
from cog.model.load import CogModel

IGNORED = -100  # target of a position that does not count
MAX_DRAWS = 1000  # documents drawn in vain before a corpus is refused


@dataclass(frozen=True, slots=True)
class RetroBatch:
    """Windows of documents, and what each of their tokens may see.

    :param inputs: Token ids, padded with 0. *Shape:* ``(batch, prefix_len)``
    :param targets: The token after each; ``IGNORED`` where none counts. *Shape:* as ``inputs``
    :param neighbours: The neighbours of the chunks that have ended; None if none has.
    :param token_memories: The chunk of each position; -1 for none. *Shape:* ``(batch *
        prefix_len,)``
    """

    inputs: Tensor
    targets: Tensor
    neighbours: Neighbours | None
    token_memories: Tensor

    @property
    def num_tokens(self) -> int:
        """Number of tokens that are learnt from.

        :returns: The count.
        """
        return int((self.targets != IGNORED).sum())


class RetroBatches:
    """Draws windows of an index's documents, long documents more often.

    :param model: The model.
    :param index: The open index.
    :param config: The adapter's sizes.
    :param batch_windows: Number of windows of a batch.
    :param window_tokens: Number of tokens of a window, at most.
    :param seed: Seed of the draw.
    :raises GenerationError: If nothing in the index has a continuation.
    """

    def __init__(
        self,
        model: CogModel,
        index: PhraseIndex,
        *,
        config: RetroConfig,
        batch_windows: int,
        window_tokens: int,
        seed: int,
    ) -> None:
        self._model, self._index, self._config = model, index, config
        self._source = NeighbourSource(index, model.retriever, config=config)
        self._documents = index.chunk_documents()
        self._batch_windows = batch_windows
        self._window_tokens = min(window_tokens, model.prefix_encoder.max_positions)
        self._generator = np.random.default_rng(seed)

    def __iter__(self) -> Iterator[RetroBatch]:
        """Draw batches.

        :yields: Batches, without end.
        """
        while True:
            drawn = [self._draw() for _ in range(self._batch_windows)]
            yield self.make([ids for ids, _ in drawn], [document for _, document in drawn])

    def make(self, windows: list[list[int]], documents: list[int]) -> RetroBatch:
        """Lay windows out and find the neighbours of their chunks.

        :param windows: Token ids, two or more each.
        :param documents: The document of each, whose own chunks are no neighbours.
        :returns: The batch.
        """
        size = self._config.chunk_tokens
        longest = max(map(len, windows)) - 1
        inputs = torch.zeros(len(windows), longest, dtype=torch.long)
        targets = torch.full((len(windows), longest), IGNORED)
        owners = torch.full((len(windows), longest), -1)
        texts: list[str] = []
        left_out: list[int] = []
        for row, (ids, document) in enumerate(zip(windows, documents, strict=True)):
            length = len(ids) - 1
            inputs[row, :length] = torch.tensor(ids[:-1])
            targets[row, :length] = torch.tensor(ids[1:])
            first = len(texts)
            for position in range(length):
                chunk = get_chunk(position, chunk_tokens=size)
                if chunk >= 0:
                    owners[row, position] = first + chunk
            for chunk in range(length // size):
                texts.append(self._read_chunk(ids, chunk))
                left_out.append(document)
        found = self._source.find(texts, left_out=left_out) if texts else None
        return RetroBatch(inputs, targets, found, owners.flatten())

    def _read_chunk(self, ids: list[int], chunk: int) -> str:
        size = self._config.chunk_tokens
        taken = np.array(ids[chunk * size : (chunk + 1) * size], dtype=np.int32)
        if chunk == 0 and self._model.prefix_encoder.begin_token_id is not None:
            taken = taken[1:]
        return self._model.splitter.decode(taken).decode(errors="replace")

    def _draw(self) -> tuple[list[int], int]:
        begin = self._model.prefix_encoder.begin_token_id
        start_ids = [] if begin is None else [begin]
        room = self._window_tokens - len(start_ids)
        for _ in range(MAX_DRAWS):
            chunk = int(self._generator.integers(len(self._documents)))
            document = int(self._documents[chunk])
            text = self._index.get_documents([document])[document].text
            ids: NDArray[np.int32] = self._model.splitter.encode(text)
            first = int(self._generator.integers(max(1, len(ids) - room + 1)))
            window = start_ids + ids[first : first + room].tolist()
            if len(window) > self._config.chunk_tokens:
                return window, document
        corpus_id = self._index.manifest.corpus
        raise TrainingError(
            f"the adapter of RETRO needs documents of over {self._config.chunk_tokens} tokens",
            found=f"none among {MAX_DRAWS} drawn from {corpus_id}",
            run="name another corpus, or join its lines to documents (format.documents)",
            about=corpus_id,
        )
