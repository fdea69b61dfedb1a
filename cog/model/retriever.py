"""The document retriever: texts go in, unit vectors come out."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch.nn import functional

from cog.model.pieces import PieceReader
from cog.model.protocols import TextNetwork


class MeanRetriever(PieceReader):
    """A bidirectional encoder whose last hidden states are averaged over the mask and normalised.

    Differs from the paper, which uses DPR's context encoder.
    """

    def __init__(self, network: TextNetwork, tokenizer: Tokenizer, *, max_pieces: int) -> None:
        super().__init__(network, tokenizer, max_pieces=max_pieces, keep_last=True)
        self.dim = network.dim  # of a vector

    @torch.inference_mode()
    def encode_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Encode texts together, to unit length; of a text that is too long the end is read."""
        if not texts:
            return np.zeros((0, self.dim), dtype=np.float32)
        batch = self.encode_pieces(texts)
        states = self.hidden_states(batch)
        weights = batch.mask.unsqueeze(-1).to(states)  # (batch, num_pieces, 1)
        means = (states * weights).sum(1) / weights.sum(1)
        vectors: NDArray[np.float32] = functional.normalize(means, dim=-1).cpu().numpy()
        return vectors
