"""What may stand in for the model's parts: the shapes that the index and decoding rely on."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class WordVectors:
    """The vectors of the words of one chunk (CoG, section 3.1, eq. 2).

    :param start: Start vectors. *Shape:* ``(num_words, dim)``, float32
    :param end: End vectors. *Shape:* ``(num_words, dim)``, float32
    :param has_piece: Whether the phrase encoder saw the word. *Shape:* ``(num_words,)``, bool
    """

    start: NDArray[np.float32]
    end: NDArray[np.float32]
    has_piece: NDArray[np.bool_]


class ChunkEncoder(Protocol):
    """Encodes the words of chunks: the phrase encoder with its heads."""

    @property
    def dim(self) -> int:
        """Width of a start vector, and of an end vector."""

    def encode_chunks(
        self, texts: Sequence[str], word_spans: Sequence[NDArray[np.int32]]
    ) -> list[WordVectors]:
        """Encode chunks together.

        :param texts: Text of each chunk.
        :param word_spans: Per chunk, the characters of each word relative to the chunk's text,
            leading space
            excluded. *Shape:* ``(num_words, 2)``
        :returns: Vectors per chunk.
        """


class Retriever(Protocol):
    """Encodes texts for retrieval."""

    @property
    def dim(self) -> int:
        """Width of a vector."""

    def encode_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Encode texts together.

        :param texts: Prefixes or chunks.
        :returns: Vectors of unit length. *Shape:* ``(num_texts, dim)``
        """
