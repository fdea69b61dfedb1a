"""Neighbours: chunks of text go in, tokens of similar chunks and of what follows them come out."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cog.baselines.retro.adapter import RetroConfig
from cog.errors import GenerationError
from cog.index.reader import PhraseIndex
from cog.model.retriever import MeanRetriever

SPARE_CHUNKS = 30  # found beyond what is wanted, in place of those of a left-out document


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Tokens of the neighbours of some chunks.

    :param token_ids: Padded with 0. *Shape:* ``(num_chunks, num_neighbours, neighbour_len)``
    :param mask: What is no padding. *Shape:* as ``token_ids``, bool
    """

    token_ids: Tensor
    mask: Tensor


class NeighbourSource:
    """Finds neighbours in a phrase index, of which only tokens and chunk vectors are used.

    :param index: The open index.
    :param retriever: The frozen retriever it was built with.
    :param config: How many, and how long.
    :raises GenerationError: If no document of the index is longer than a chunk, so that nothing
        has a continuation.
    """

    def __init__(
        self, index: PhraseIndex, retriever: MeanRetriever, *, config: RetroConfig
    ) -> None:
        self._index = index
        self._retriever = retriever
        self._config = config
        self._documents = index.chunk_documents()  # (num_chunks,)
        self.has_continuation = np.append(self._documents[1:] == self._documents[:-1], False)
        if not self.has_continuation.any():
            corpus_id = index.manifest.corpus
            raise GenerationError(
                f"RETRO needs a corpus of documents longer than a chunk; {corpus_id} has none",
                found=f"{index.num_chunks} chunks, none with a continuation",
                run="name another corpus, or join its lines to documents (format.documents)",
                about=corpus_id,
            )

    def find(self, texts: Sequence[str], *, left_out: Sequence[int] | None = None) -> Neighbours:
        """Find the neighbours of chunks.

        :param texts: The chunks.
        :param left_out: A document per chunk whose own chunks do not count; None for none.
        :returns: The tokens, best neighbour first.
        """
        wanted = self._config.num_neighbours
        top_k = wanted if left_out is None else wanted + SPARE_CHUNKS
        vectors = self._retriever.encode_texts(texts)
        found = self._index.search_chunks(vectors, top_k=top_k)
        if left_out is not None:
            found = self._leave_out(found, np.asarray(left_out))
        return self.read(found[:, :wanted])

    def read(self, chunk_ids: NDArray[np.int64]) -> Neighbours:
        """Read the tokens of chunks and of what follows each in its document.

        :param chunk_ids: -1 for none. *Shape:* ``(num_chunks, num_neighbours)``
        :returns: The tokens.
        """
        config = self._config
        needed = np.unique(chunk_ids[chunk_ids >= 0])
        needed = np.union1d(needed, needed[self.has_continuation[needed]] + 1)
        tokens = self._read_tokens(needed)
        shape = (*chunk_ids.shape, config.max_neighbour_tokens)
        ids = torch.zeros(shape, dtype=torch.long)
        mask = torch.zeros(shape, dtype=torch.bool)
        for place in np.ndindex(*chunk_ids.shape):
            chunk = int(chunk_ids[place])
            if chunk < 0:
                continue
            joined = tokens[chunk][: config.neighbour_tokens]
            if self.has_continuation[chunk]:
                following = tokens[chunk + 1][: config.continuation_tokens]
                joined = np.concatenate([joined, following])
            ids[place][: len(joined)] = torch.from_numpy(joined.astype(np.int64))
            mask[place][: len(joined)] = True
        return Neighbours(ids, mask)

    def _read_tokens(self, chunk_ids: NDArray[np.int64]) -> dict[int, NDArray[np.int32]]:
        gathered = self._index.gather_chunks(chunk_ids)
        found = {}
        for number, chunk in enumerate(chunk_ids.tolist()):
            first, last = gathered.word_offsets[number], gathered.word_offsets[number + 1] - 1
            tokens = slice(gathered.word_tokens[first, 0], gathered.word_tokens[last, 1])
            found[chunk] = gathered.token_ids[tokens]
        return found

    def _leave_out(
        self, found: NDArray[np.int64], left_out: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        # chunks of other documents move to the front; what is missing is -1
        is_own = self._documents[found] == left_out[:, None]
        order = np.argsort(is_own, axis=1, kind="stable")
        moved: NDArray[np.int64] = np.take_along_axis(np.where(is_own, -1, found), order, axis=1)
        return moved
