"""The document retriever: texts go in, unit vectors come out."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch.nn import functional

from cog.model.pieces import encode_pieces
from cog.model.protocols import TextNetwork


class MeanRetriever:
    """A bidirectional encoder whose last hidden states are averaged over the mask and normalised.

    Differs from the paper, which uses DPR's context encoder. Pieces are counted without special
    ones.
    """

    def __init__(self, network: TextNetwork, tokenizer: Tokenizer, *, max_pieces: int) -> None:
        self._network = network
        self._tokenizer = tokenizer
        self._max_pieces = max_pieces

    @property
    def dim(self) -> int:
        """Width of a vector."""
        return self._network.dim

    def count_pieces(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Number of WordPieces that are read of each text, special ones included."""
        batch = encode_pieces(self._tokenizer, texts, max_pieces=self._max_pieces, keep_last=True)
        counts: NDArray[np.int64] = batch.mask.sum(1).numpy()
        return counts

    @torch.inference_mode()
    def encode_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Encode texts together, to unit length; of a text that is too long the end is read."""
        if not texts:
            return np.zeros((0, self.dim), dtype=np.float32)
        batch = encode_pieces(self._tokenizer, texts, max_pieces=self._max_pieces, keep_last=True)
        device = self._network.device
        mask = batch.mask.to(device)
        states = self._network(batch.ids.to(device), mask)
        weights = mask.unsqueeze(-1).to(states.dtype)  # (batch, num_pieces, 1)
        means = (states * weights).sum(1) / weights.sum(1)
        vectors: NDArray[np.float32] = functional.normalize(means, dim=-1).cpu().numpy()
        return vectors
