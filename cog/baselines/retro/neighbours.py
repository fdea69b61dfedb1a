"""Neighbours: chunks of text go in, tokens of similar chunks and of what follows them come out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cog.baselines.retro.config import RetroConfig
from cog.errors import GenerationError, IndexMismatchError
from cog.index.read.reader import PhraseIndex
from cog.index.search.filters import AllowedChunks
from cog.model.load import CogModel
from cog.model.words import WordSplitter
from cog.training.batches import pad_rows

MAX_SPARE_CHUNKS = 256  # found beyond what is wanted, in place of those of a left-out document


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Tokens of the neighbours of some chunks, each neighbour once and packed.

    A memory is what the neighbours of one chunk hold together.
    """

    token_ids: Tensor  # (num_tokens,)
    owners: Tensor  # (num_tokens,) the neighbour of each
    positions: Tensor  # (num_tokens,) its position in the neighbour
    padded_rows: Tensor  # (num_neighbours, neighbour_len) the token at each place of a neighbour
    padded_mask: Tensor  # likewise, bool: what is no padding
    memory_rows: Tensor  # (num_memories, memory_len) the token at each place of a memory
    memory_mask: Tensor  # likewise, bool: what is no padding

    def to(self, device: torch.device) -> "Neighbours":
        """Move the tensors."""
        return Neighbours(*(getattr(self, name).to(device) for name in self.__slots__))


def lay_out(
    neighbour_ids: NDArray[np.int64], tokens: Mapping[int, NDArray[np.int32]]
) -> Neighbours:
    """Lay out the neighbours of chunks, on the CPU.

    Of each chunk there is at least one, then -1 where there are no more.
    """
    unique, places = np.unique(neighbour_ids, return_inverse=True)
    places = places.reshape(neighbour_ids.shape)
    if unique[0] < 0:
        unique, places = unique[1:], places - 1  # -1 stays what is missing
    rows = [tokens[number] for number in unique.tolist()]
    lengths = np.array([len(row) for row in rows])
    firsts = lengths.cumsum() - lengths
    members = [[firsts[p] + np.arange(lengths[p]) for p in row if p >= 0] for row in places]
    places_of = [first + np.arange(n) for first, n in zip(firsts, lengths, strict=True)]
    arrays = (
        np.concatenate(rows).astype(np.int64),
        np.repeat(np.arange(len(rows)), lengths),
        np.concatenate([np.arange(n) for n in lengths]),
        *pad_rows(places_of),
        *pad_rows([np.concatenate(parts) for parts in members]),
    )
    return Neighbours(*map(torch.from_numpy, arrays))


class NeighbourSource:
    """Finds neighbours in a phrase index, of which only tokens and chunk vectors are used.

    The index must be of the model's retriever, hold as many chunks as a chunk has neighbours, and
    have some with a continuation.
    """

    def __init__(self, index: PhraseIndex, model: CogModel, *, config: RetroConfig) -> None:
        self._index = index
        self._model = model
        self._config = config
        self.documents = index.chunk_documents()  # (num_chunks,)
        self.has_continuation = np.append(self.documents[1:] == self.documents[:-1], False)
        self._check()

    def _check(self) -> None:
        index, config = self._index, self._config
        corpus_id = index.corpus
        if index.model != self._model.fingerprint:
            raise IndexMismatchError(
                f"RETRO needs neighbours by the retriever of model {self._model.fingerprint:.16}",
                found=f"an index of {corpus_id} by that of model {index.model:.16}",
                run=f"cog index build {corpus_id}",
                about=corpus_id,
            )
        wanted, found, run = "", "", ""
        if index.num_chunks < config.num_neighbours:
            wanted = f"an index of {config.num_neighbours} chunks or more, the neighbours of one"
            found = f"{index.num_chunks} in that of {corpus_id}"
            run = "lower retro.num_neighbours and train anew"
        elif not self.has_continuation.any():
            wanted = f"a corpus of documents longer than a chunk; {corpus_id} has none"
            found = f"{index.num_chunks} chunks, none with a continuation"
            run = "join its lines to documents (format.documents)"
        if wanted:
            raise GenerationError(
                f"RETRO needs {wanted}",
                found=found,
                run=f"name another corpus, or {run}",
                about=corpus_id,
            )

    def find(
        self,
        texts: Sequence[str],
        *,
        left_out: NDArray[np.int64] | None = None,
        allowed: AllowedChunks | None = None,
    ) -> NDArray[np.int64]:
        """Find the neighbours of chunks: chunk ids, best first; -1 where there are no more.

        ``left_out`` is a document per chunk whose own chunks do not count, ``allowed`` the chunks
        that may be found; None for all. *Shape:* ``(num_texts, num_neighbours)``
        """
        wanted = top_k = self._config.num_neighbours
        if left_out is not None:
            own = np.bincount(self.documents, minlength=int(left_out.max()) + 1)[left_out]
            top_k += min(int(own.max()), MAX_SPARE_CHUNKS)
        vectors = self._model.retriever.encode_texts(texts)
        found = self._index.search_chunks(vectors, top_k=top_k, allowed=allowed).rows
        if left_out is not None:
            is_own = self.documents[found] == left_out[:, None]
            order = np.argsort(is_own, axis=1, kind="stable")  # those of others move to the front
            found = np.take_along_axis(np.where(is_own, -1, found), order, axis=1)
        complete = np.full((len(texts), wanted), -1, dtype=np.int64)
        complete[:, : found.shape[1]] = found[:, :wanted]
        return complete

    def read(self, chunk_ids: NDArray[np.int64]) -> dict[int, NDArray[np.int32]]:
        """Read the tokens of chunks and of what follows each in its document."""
        # a chunk may be longer than a neighbour: what follows begins inside it, and goes on in the
        # next one
        wanted = np.unique(chunk_ids[chunk_ids >= 0])
        tokens = self._read_tokens(np.union1d(wanted, wanted[self.has_continuation[wanted]] + 1))
        found = {}
        for chunk in wanted.tolist():
            found[chunk] = tokens[chunk]
            if self.has_continuation[chunk]:
                found[chunk] = np.concatenate([found[chunk], tokens[chunk + 1]])
            found[chunk] = found[chunk][: self._config.max_neighbour_tokens]
        return found

    def _read_tokens(self, chunk_ids: NDArray[np.int64]) -> dict[int, NDArray[np.int32]]:
        gathered = self._index.gather_chunks(chunk_ids)
        found = {}
        for number, chunk in enumerate(chunk_ids.tolist()):
            first, last = gathered.word_offsets[number], gathered.word_offsets[number + 1] - 1
            tokens = slice(gathered.word_tokens[first, 0], gathered.word_tokens[last, 1])
            found[chunk] = gathered.token_ids[tokens]
        return found


def read_chunk(
    splitter: WordSplitter, token_ids: Sequence[int], *, begin_token_id: int | None
) -> str:
    """The text of a chunk for the retriever; characters that the chunk cuts are replaced."""
    ids = np.array(token_ids, dtype=np.int32)
    if begin_token_id is not None and len(ids) and ids[0] == begin_token_id:
        ids = ids[1:]
    return splitter.decode(ids).decode(errors="replace")
