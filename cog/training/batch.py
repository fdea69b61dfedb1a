"""One training batch: chunks of text with their segmentation, as numpy arrays (no torch)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cog.training.segmentation.records import BatchLabels


@dataclass(frozen=True, slots=True)
class Batch:
    """Chunks that are at once prefixes to predict and sources to copy from.

    :param number: What it was drawn by.
    :param documents: Documents of its chunks, each once. *Shape:* ``(num_documents,)``
    :param token_ids: Begin token, text before the chunk, and chunk, padded on the right. *Shape:*
        ``(num_chunks, prefix_len)``
    :param token_mask: Where there is a token. *Shape:* ``(num_chunks, prefix_len)``
    :param target_starts: Column of each chunk's first token that is to be predicted: what stands
        before it is the begin token and text before the chunk, or the chunk's first token where
        there is neither. *Shape:* ``(num_chunks,)``
    :param piece_ids: WordPieces, padded on the right. *Shape:* ``(num_chunks, num_pieces)``
    :param piece_mask: Where there is a piece. *Shape:* ``(num_chunks, num_pieces)``
    :param start_pieces: Column of the first piece of each word. *Shape:* ``(num_words,)``
    :param end_pieces: Column of the last piece of each word. *Shape:* ``(num_words,)``
    """

    number: int
    documents: NDArray[np.int64]
    token_ids: NDArray[np.int64]
    token_mask: NDArray[np.bool_]
    target_starts: NDArray[np.int64]
    piece_ids: NDArray[np.int64]
    piece_mask: NDArray[np.bool_]
    start_pieces: NDArray[np.int64]
    end_pieces: NDArray[np.int64]
    labels: BatchLabels

    @property
    def num_chunks(self) -> int:
        """Number of chunks."""
        return len(self.token_ids)

    @property
    def num_tokens(self) -> int:
        """Number of tokens to predict: all of the chunks, not what stands before them."""
        return int(self.token_mask.sum() - self.target_starts.sum())

    @property
    def num_words(self) -> int:
        """Number of words of all chunks."""
        return len(self.labels.word_chunks)

    @property
    def num_queries(self) -> int:
        """Number of positions that choose a segment."""
        return len(self.labels.query_chunks)
