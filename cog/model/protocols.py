"""What may stand in for the model's parts: the shapes that the index and decoding rely on."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:  # an index is read without torch
    import torch
    from torch import Tensor

    from cog.model.cache import Layout, PrefixCache


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


class CausalNetwork(Protocol):
    """What the prefix encoder reads with: a causal language model."""

    @property
    def precision(self) -> str:
        """Precision of its linear layers."""

    @property
    def device(self) -> "torch.device":
        """Where the weights lie."""

    @property
    def vocab_size(self) -> int:
        """Number of tokens of the vocabulary."""

    @property
    def max_positions(self) -> int:
        """Number of tokens that it can read."""

    def read(self, token_ids: "Tensor", layout: "Layout", cache: "PrefixCache") -> "Tensor":
        """Read packed tokens.

        :param token_ids: *Shape:* ``(num_tokens,)``
        :param layout: Where the tokens belong.
        :param cache: Their prefixes, which grow.
        :returns: Hidden states. *Shape:* ``(num_tokens, dim)``
        """

    def score(self, states: "Tensor") -> "Tensor":
        """Scores of the vocabulary.

        :param states: Hidden states. *Shape:* ``(batch, dim)``
        :returns: *Shape:* ``(batch, vocab_size)``, float32
        """


class TextNetwork(Protocol):
    """What the retriever and the phrase encoder read with: a bidirectional encoder."""

    @property
    def max_positions(self) -> int | None:
        """Number of pieces that it can read, special ones included; None for any number."""

    @property
    def dim(self) -> int:
        """Width of a hidden state."""

    @property
    def device(self) -> "torch.device":
        """Where the weights lie."""

    def __call__(self, ids: "Tensor", mask: "Tensor") -> "Tensor":
        """Read texts.

        :param ids: *Shape:* ``(batch, num_pieces)``
        :param mask: 1 where there is a piece. *Shape:* ``(batch, num_pieces)``
        :returns: Hidden states. *Shape:* ``(batch, num_pieces, dim)``
        """


class ChunkEncoder(Protocol):
    """Encodes the words of chunks: the phrase encoder with its heads."""

    @property
    def dim(self) -> int:
        """Width of a start vector, and of an end vector."""

    def count_pieces(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Number of WordPieces that are read of each text; texts of one length need no padding."""

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

    def count_pieces(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Number of WordPieces that are read of each text; texts of one length need no padding."""

    def encode_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Encode texts together.

        :param texts: Prefixes or chunks.
        :returns: Vectors of unit length. *Shape:* ``(num_texts, dim)``
        """
