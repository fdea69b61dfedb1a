"""What one index and a union have in common: vectors, tokens, words go in and are looked up."""

from abc import ABC, abstractmethod
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cog.index.contexts import Contexts
from cog.index.records import Places
from cog.index.searcher import Neighbours
from cog.index.word_counts import WordBits, WordCounts


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

    @abstractmethod
    def load_contexts(self) -> Contexts:
        """Open what tokens are looked up in.

        :returns: The contexts.
        """

    @abstractmethod
    def load_word_counts(self) -> WordCounts:
        """Read how often each word stands in the index.

        :returns: The counts.
        """

    @cached_property
    def _contexts(self) -> Contexts:
        return self.load_contexts()

    @cached_property
    def _word_bits(self) -> WordBits:
        return WordBits(self.load_word_counts())

    def find_places(
        self,
        tail: NDArray[np.int32],
        *,
        min_tokens: int,
        max_places: int,
        allowed: NDArray[np.bool_] | None = None,
    ) -> Places:
        """Find where the most of the last tokens of a text stand, with a token behind them.

        At most ``cog.index.contexts.MAX_CONTEXT`` tokens are looked at. What stands there is of one
        document, without a gap. Where nothing of the longest is allowed, the next shorter counts.

        :param tail: The last tokens of the text. *Shape:* ``(num_tokens,)``
        :param min_tokens: How many of them must stand before a place, at least; 1 or more.
        :param max_places: Number of places, at most; the first of the index are taken.
        :param allowed: Chunks that may be found; None for all. *Shape:* ``(num_chunks,)``
        :returns: The places.
        """
        return self._contexts.find_places(
            tail, min_tokens=min_tokens, max_places=max_places, allowed=allowed
        )

    def get_word_bits(self, word_hashes: NDArray[np.uint64]) -> NDArray[np.float32]:
        """The information of words: -log2 of the share of a word's form in the index.

        Words that differ in case and leading space only have one form; a word that is not in the
        index counts as one that stands there once.

        :param word_hashes: As ``word_hashes`` of gathered chunks. *Shape:* ``(num_words,)``
        :returns: Bits. *Shape:* ``(num_words,)``
        """
        return self._word_bits.get(word_hashes)

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
