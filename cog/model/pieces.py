"""WordPieces: texts go in, padded ids with character offsets come out, and what reads them."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

from cog.errors import CheckpointError
from cog.model.protocols import TextNetwork

_logger = logging.getLogger(__name__)

LEAST_ROWS = 16  # fewer are multiplied by other kernels of a processor, with other last bits


def fill_up(rows: Tensor, num_each: int = 1) -> Tensor:
    """Repeat rows that are too few, so that what becomes of one hangs on no other.

    ``num_each`` is what a row counts for. The first ones are those that were given.
    """
    times = -(-LEAST_ROWS // max(1, len(rows) * num_each))
    return rows if times == 1 else rows.repeat(times, *[1] * (rows.dim() - 1))


@dataclass(frozen=True, slots=True)
class PieceBatch:
    """Texts as WordPieces, ``[CLS] pieces [SEP]`` each, padded to one length."""

    ids: Tensor  # (batch, num_pieces)
    mask: Tensor  # (batch, num_pieces) 1 where there is a piece
    # per text (num_pieces, 2) characters of each piece, special ones aside
    offsets: list[NDArray[np.int64]]
    is_cut: list[bool]  # per text, whether pieces were left out
    num_leading: int  # special pieces before the first


def encode_pieces(
    tokenizer: Tokenizer, texts: Sequence[str], *, max_pieces: int, keep_last: bool = False
) -> PieceBatch:
    """Tokenise texts for a bidirectional encoder.

    Of a long text the first ``max_pieces``, special ones aside, are kept, or the last
    (``keep_last``).
    """
    encodings = tokenizer.encode_batch(list(texts), add_special_tokens=False)
    special = tokenizer.encode("", add_special_tokens=True).ids  # [CLS], [SEP]
    num_leading = (len(special) + 1) // 2
    rows, offsets = [], []
    for encoding in encodings:
        kept = slice(-max_pieces, None) if keep_last else slice(max_pieces)
        rows.append([*special[:num_leading], *encoding.ids[kept], *special[num_leading:]])
        offsets.append(np.array(encoding.offsets[kept], dtype=np.int64).reshape(-1, 2))
    length = max(map(len, rows), default=0)
    ids = np.zeros((len(rows), length), dtype=np.int64)
    mask = np.zeros((len(rows), length), dtype=np.int64)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = row
        mask[i, : len(row)] = 1
    is_cut = [len(encoding.ids) > max_pieces for encoding in encodings]
    return PieceBatch(torch.from_numpy(ids), torch.from_numpy(mask), offsets, is_cut, num_leading)


class PieceReader:
    """A bidirectional encoder with its tokenizer; of a long text it reads the beginning or the end.

    That is ``max_pieces``, beside which the special ones are read.
    """

    def __init__(
        self,
        network: TextNetwork,
        tokenizer: Tokenizer,
        *,
        max_pieces: int,
        keep_last: bool = False,
    ) -> None:
        self.network, self.device = network, network.device
        self._tokenizer = tokenizer
        self._max_pieces = max_pieces
        self._keep_last = keep_last
        self._most: int | None = None  # texts read at once; None for any number

    def encode_pieces(self, texts: Sequence[str]) -> PieceBatch:
        """Tokenise texts as they are read."""
        return encode_pieces(
            self._tokenizer, texts, max_pieces=self._max_pieces, keep_last=self._keep_last
        )

    def count_pieces(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Number of WordPieces that are read of each text, special ones included."""
        counts: NDArray[np.int64] = self.encode_pieces(texts).mask.sum(1).numpy()
        return counts

    def hidden_states(self, batch: PieceBatch) -> Tensor:
        """Run the encoder alone. *Shape:* ``(batch, num_pieces, width)``."""
        ids, mask = (fill_up(each, each.shape[1]) for each in (batch.ids, batch.mask))
        return self.read(ids.to(self.device), mask.to(self.device))[: len(batch.ids)]

    def read(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Read texts as the network, half as many at once from where memory runs out.

        Without room for a single one it is a ``CheckpointError``.
        """
        parts: list[Tensor] = []
        first = 0
        while first < len(ids):
            end = min(len(ids), first + (self._most or len(ids)))
            try:
                parts.append(self.network(ids[first:end], mask[first:end]))
            except torch.OutOfMemoryError:
                pass  # handled when the pass and what it held are gone
            else:
                first = end
                continue
            self._halve(end - first)
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _halve(self, size: int) -> None:
        if size == 1:
            raise CheckpointError(
                "the device must have room for one text",
                found="out of memory",
                run="use --device cpu, or end what else runs on the device",
            )
        if self._most is None:
            _logger.warning("the device is out of memory: half as many texts at a time from now on")
        self._most = size // 2


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
