"""The phrase encoder: chunks go in, the start and end vectors of their words come out."""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor, nn

from cog.errors import CheckpointError
from cog.model.pieces import PieceBatch, encode_pieces
from cog.model.protocols import TextNetwork, WordVectors
from cog.model.weights import Weights, load_part, select_weights


class Head(nn.Module):
    """MLP that turns a hidden state into a start or an end vector (CoG, section 3.1).

    Differs from the paper's code, whose MLP is one linear layer on a tanh: two linear layers with
    an exact GELU.

    :param width: Width of the hidden state.
    :param hidden: Width between the layers.
    :param dim: Width of the vector.
    """

    def __init__(self, width: int, hidden: int, dim: int) -> None:
        super().__init__()
        self.l1 = nn.Linear(width, hidden)
        self.l2 = nn.Linear(hidden, dim)

    def forward(self, hidden_states: Tensor) -> Tensor:
        """Project hidden states: ``(num_words, width)`` to ``(num_words, dim)``."""
        vectors: Tensor = self.l2(nn.functional.gelu(self.l1(hidden_states)))
        return vectors


class PhraseEncoder:
    """A bidirectional encoder with a start and an end head (CoG, section 3.1, eq. 2).

    The start vector of a word is read at the first WordPiece that overlaps it, its end vector at
    the last. The heads are the tensors ``start.*`` and ``end.*``; if there are none, or one does
    not fit, it is a ``CheckpointError``.
    """

    def __init__(
        self, network: TextNetwork, tokenizer: Tokenizer, weights: Weights, *, max_pieces: int
    ) -> None:
        self._network = network
        self._tokenizer = tokenizer
        self._max_pieces = max_pieces
        if "start.l1.weight" not in weights:
            raise CheckpointError(
                "the phrase encoder needs phrase heads",
                found="a model of tokens only (trained with --objective tokens)",
                run="set `model:` in params.yaml to a model that was trained with phrases",
                about="start.l1.weight",
            )
        hidden, width = weights["start.l1.weight"].shape
        self._dim = weights["start.l2.weight"].shape[0]
        self.start = Head(width, hidden, self._dim)
        self.end = Head(width, hidden, self._dim)
        load_part(self.start, select_weights(weights, "start."))
        load_part(self.end, select_weights(weights, "end."))
        for head in (self.start, self.end):
            head.eval().requires_grad_(False).to(network.device)

    @property
    def dim(self) -> int:
        """Width of a start vector, and of an end vector."""
        return self._dim

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self._network.device

    def count_pieces(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Number of WordPieces that are read of each text, special ones included."""
        batch = encode_pieces(self._tokenizer, texts, max_pieces=self._max_pieces)
        counts: NDArray[np.int64] = batch.mask.sum(1).numpy()
        return counts

    @torch.inference_mode()
    def encode_chunks(
        self, texts: Sequence[str], word_spans: Sequence[NDArray[np.int32]]
    ) -> list[WordVectors]:
        """Encode chunks together."""
        if not texts:
            return []
        batch = encode_pieces(self._tokenizer, texts, max_pieces=self._max_pieces)
        located = [locate_words(batch, row, spans) for row, spans in enumerate(word_spans)]
        hidden_states = self.hidden_states(batch)  # (batch, num_pieces, width)
        device = hidden_states.device
        rows = np.repeat(np.arange(len(texts)), [len(spans) for spans in word_spans])
        first = np.concatenate([firsts for firsts, _, _ in located])
        last = np.concatenate([lasts for _, lasts, _ in located])
        row_index = torch.from_numpy(rows).to(device)
        start = self.start(
            hidden_states[row_index, torch.from_numpy(first).to(device)]
        )  # (num_words, dim)
        end = self.end(hidden_states[row_index, torch.from_numpy(last).to(device)])
        starts, ends = start.cpu().numpy(), end.cpu().numpy()
        bounds = np.concatenate([[0], np.cumsum([len(spans) for spans in word_spans])])
        return [
            WordVectors(starts[a:b], ends[a:b], has_piece)
            for a, b, (_, _, has_piece) in zip(bounds[:-1], bounds[1:], located, strict=True)
        ]

    def hidden_states(self, batch: PieceBatch) -> Tensor:
        """Run the bidirectional encoder alone. *Shape:* ``(batch, num_pieces, width)``."""
        device = self.device
        return self._network(batch.ids.to(device), batch.mask.to(device))


def untrained_names(names: Iterable[str]) -> tuple[str, ...]:
    """Tensors that trained weights may lack: word embeddings may stay the base's.

    The pooler is never used.
    """
    return tuple(name for name in names if "word_embeddings" in name or name.startswith("pooler."))


def locate_words(
    batch: PieceBatch, row: int, spans: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Find the WordPieces of each word of a text, whose characters have no leading space.

    Gives columns of the first and of the last piece that overlap each word, and whether it was seen
    whole. *Shape:* ``(num_words, 2)`` to ``(num_words,)`` each
    """
    pieces = batch.offsets[row]  # (num_pieces, 2)
    first = np.searchsorted(pieces[:, 1], spans[:, 0], side="right")
    last = np.searchsorted(pieces[:, 0], spans[:, 1], side="left") - 1
    has_piece = (first <= last) & (spans[:, 0] < spans[:, 1])
    if batch.is_cut[row] and len(pieces):
        has_piece &= spans[:, 1] <= pieces[-1, 1]  # a word cut in the middle was not seen whole
    first = np.where(has_piece, first, 0)
    last = np.where(has_piece, last, 0)
    return first + batch.num_leading, last + batch.num_leading, has_piece
