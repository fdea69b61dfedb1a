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
    """The vectors of the words of one chunk (CoG, section 3.1, eq. 2)."""

    start: NDArray[np.float32]  # (num_words, dim)
    end: NDArray[np.float32]  # (num_words, dim)
    has_piece: NDArray[np.bool_]  # (num_words,) whether the phrase encoder saw the word


class CausalNetwork(Protocol):
    """What the prefix encoder reads with: a causal language model."""

    precision: str  # of its linear layers
    device: "torch.device"  # where the weights lie
    vocab_size: int  # number of tokens of the vocabulary
    max_positions: int  # number of tokens that it can read

    def read(self, token_ids: "Tensor", layout: "Layout", cache: "PrefixCache") -> "Tensor":
        """Read packed tokens, by which their prefixes in the cache grow; gives hidden states.

        *Shape:* ``(num_tokens,)`` to ``(num_tokens, dim)``
        """

    def score(self, states: "Tensor") -> "Tensor":
        """Scores of the vocabulary, float32: ``(batch, dim)`` to ``(batch, vocab_size)``."""


class TextNetwork(Protocol):
    """What the retriever and the phrase encoder read with: a bidirectional encoder."""

    max_positions: int | None  # pieces that it can read, special ones included; None for any number
    dim: int  # width of a hidden state
    device: "torch.device"  # where the weights lie

    def __call__(self, ids: "Tensor", mask: "Tensor") -> "Tensor":
        """Read texts, with a mask of 1 where there is a piece; gives hidden states.

        *Shape:* twice ``(batch, num_pieces)`` to ``(batch, num_pieces, dim)``
        """


class Retriever(Protocol):
    """Encodes texts for retrieval."""

    dim: int  # width of a vector

    def count_pieces(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Number of WordPieces that are read of each text; texts of one length need no padding."""

    def encode_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Encode prefixes or chunks together, to unit length. *Shape:* ``(num_texts, dim)``."""
