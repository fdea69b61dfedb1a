"""What one index and a union have in common: vectors and chunk ids go in, checked and searched."""

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from cog.index.searcher import Neighbours


class ChunkSearch(ABC):
    """An open index, of one corpus or of several."""

    @property
    @abstractmethod
    def num_chunks(self) -> int:
        """Number of chunks.

        :returns: The count.
        """

    @abstractmethod
    def search_neighbours(
        self,
        vectors: NDArray[np.float32],
        *,
        top_k: int,
        allowed: NDArray[np.bool_] | None = None,
    ) -> Neighbours:
        """Find the nearest chunks, with their scores.

        :param vectors: *Shape:* ``(batch, retriever_dim)``
        :param top_k: Number of chunks per vector.
        :param allowed: Chunks that may be found; None for all. *Shape:* ``(num_chunks,)``
        :returns: Chunk ids and inner products, best first.
        """

    def search_chunks(
        self,
        vectors: NDArray[np.float32],
        *,
        top_k: int,
        allowed: NDArray[np.bool_] | None = None,
    ) -> NDArray[np.int64]:
        """Find the chunks nearest to retriever vectors, by inner product.

        :param vectors: *Shape:* ``(batch, retriever_dim)``
        :param top_k: Number of chunks per vector.
        :param allowed: Chunks that may be found; None for all. *Shape:* ``(num_chunks,)``
        :returns: Chunk ids, best first. *Shape:* ``(batch, min(top_k, num_allowed))``
        """
        return self.search_neighbours(vectors, top_k=top_k, allowed=allowed).rows

    def check_chunk_ids(self, chunk_ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Refuse chunk ids that are out of range or come twice.

        :param chunk_ids: Chunks, in any order. *Shape:* ``(num_chunks,)``
        :returns: The same.
        :raises ValueError: If an id is out of range or comes twice.
        """
        chunk_ids = np.asarray(chunk_ids, dtype=np.int64)
        if len(chunk_ids) and not 0 <= chunk_ids.min() <= chunk_ids.max() < self.num_chunks:
            raise ValueError(f"chunk ids must be in [0, {self.num_chunks})")
        if len(np.unique(chunk_ids)) != len(chunk_ids):
            raise ValueError("chunk ids must differ")
        return chunk_ids
