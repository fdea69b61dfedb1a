"""WordPieces: texts go in, padded ids with character offsets come out."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor


@dataclass(frozen=True, slots=True)
class PieceBatch:
    """Texts as WordPieces, ``[CLS] pieces [SEP]`` each, padded to one length.

    :param ids: *Shape:* ``(batch, num_pieces)``
    :param mask: 1 where there is a piece. *Shape:* ``(batch, num_pieces)``
    :param offsets: Per text, the characters of each piece, special ones aside. *Shape:*
        ``(num_pieces, 2)``
    :param is_cut: Per text, whether pieces were left out.
    :param num_leading: Number of special pieces before the first.
    """

    ids: Tensor
    mask: Tensor
    offsets: list[NDArray[np.int64]]
    is_cut: list[bool]
    num_leading: int


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
