"""The phrase encoder: chunks go in, the start and end vectors of their words come out."""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor, nn

from cog.errors import CheckpointError
from cog.model.pieces import PieceBatch, PieceReader, fill_up
from cog.model.protocols import TextNetwork, WordVectors
from cog.model.weights import Weights, load_part, select_weights


class Head(nn.Module):
    """MLP that turns a hidden state into a start or an end vector (CoG, section 3.1).

    Differs from the paper's code, whose MLP is one linear layer on a tanh: two linear layers with
    an exact GELU, and ``hidden`` numbers between them.
    """

    def __init__(self, width: int, hidden: int, dim: int) -> None:
        super().__init__()
        self.l1 = nn.Linear(width, hidden)
        self.l2 = nn.Linear(hidden, dim)

    def forward(self, hidden_states: Tensor) -> Tensor:
        """Project hidden states: ``(num_words, width)`` to ``(num_words, dim)``."""
        vectors: Tensor = self.l2(nn.functional.gelu(self.l1(hidden_states)))
        return vectors


class PhraseEncoder(PieceReader):
    """A bidirectional encoder with a start and an end head (CoG, section 3.1, eq. 2).

    The start vector of a word is read at the first WordPiece that overlaps it, its end vector at
    the last. The heads are the tensors ``start.*`` and ``end.*``; if there are none, or one does
    not fit, it is a ``CheckpointError``.
    """

    def __init__(
        self, network: TextNetwork, tokenizer: Tokenizer, weights: Weights, *, max_pieces: int
    ) -> None:
        super().__init__(network, tokenizer, max_pieces=max_pieces)
        if "start.l1.weight" not in weights:
            raise CheckpointError(
                "the phrase encoder needs phrase heads",
                found="a model of tokens only (trained with --objective tokens)",
                run="set `model:` in params.yaml to a model that was trained with phrases",
            )
        hidden, width = weights["start.l1.weight"].shape
        self.dim = weights["start.l2.weight"].shape[0]  # of a start vector, and of an end vector
        self.start = Head(width, hidden, self.dim)
        self.end = Head(width, hidden, self.dim)
        load_part(self.start, select_weights(weights, "start."))
        load_part(self.end, select_weights(weights, "end."))
        for head in (self.start, self.end):
            head.eval().requires_grad_(False).to(network.device)

    @torch.inference_mode()
    def encode_chunks(
        self, texts: Sequence[str], word_spans: Sequence[NDArray[np.int32]]
    ) -> list[WordVectors]:
        """Encode the words of chunks together.

        Spans are, per chunk, the characters of each word relative to the chunk's text, leading
        space excluded. *Shape:* ``(num_words, 2)`` each
        """
        if not texts:
            return []
        batch = self.encode_pieces(texts)
        located = [locate_words(batch, row, spans) for row, spans in enumerate(word_spans)]
        hidden_states = self.hidden_states(batch)  # (batch, num_pieces, width)
        counts = [len(spans) for spans in word_spans]
        rows = torch.arange(len(texts)).repeat_interleave(torch.tensor(counts))
        first, last = (
            torch.from_numpy(np.concatenate([each[side] for each in located])) for side in (0, 1)
        )
        starts, ends = (  # (num_words, dim)
            head(fill_up(hidden_states[rows, side]))[: len(rows)].cpu()
            for head, side in ((self.start, first), (self.end, last))
        )
        split = zip(starts.split(counts), ends.split(counts), located, strict=True)
        return [
            WordVectors(start.numpy(), end.numpy(), has_piece)
            for start, end, (_, _, has_piece) in split
        ]


def untrained_names(names: Iterable[str]) -> tuple[str, ...]:
    """Tensors that trained weights may lack: word embeddings, and the pooler, which is unused."""
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
