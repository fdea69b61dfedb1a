"""One training batch: chunks of text with their segmentation go in as numpy arrays (no torch)."""

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Batch:
    """Chunks that are at once prefixes to predict and sources to copy from.

    A span's flat id is ``word * (max_phrase_words - 1) + k``: the phrase of ``k + 2`` words that
    begins with that word. The spans of a query's own chunk are never candidates of it.

    :param token_ids: Begin token and chunk, padded on the right. *Shape:* ``(num_chunks,
        prefix_len)``, int64
    :param token_mask: Where there is a token. *Shape:* ``(num_chunks, prefix_len)``, bool
    :param target_starts: Column of each chunk's first token that is to be predicted: what stands
        before it is the begin token and text before the chunk, or the chunk's first token where
        there is neither. *Shape:* ``(num_chunks,)``, int64
    :param piece_ids: WordPieces, padded on the right. *Shape:* ``(num_chunks, num_pieces)``, int64
    :param piece_mask: Where there is a piece. *Shape:* ``(num_chunks, num_pieces)``, bool
    :param word_chunks: Chunk of each word, in order. *Shape:* ``(num_words,)``, int64
    :param start_pieces: Column of the first piece of each word. *Shape:* ``(num_words,)``, int64
    :param end_pieces: Column of the last piece of each word. *Shape:* ``(num_words,)``, int64
    :param span_mask: Whether the span of ``k + 2`` words from a word is admissible: inside its
        chunk, every word with a piece, flags obeyed. *Shape:* ``(num_words, max_phrase_words -
        1)``, bool
    :param query_chunks: Chunk of each query. *Shape:* ``(num_queries,)``, int64
    :param query_positions: Column of ``token_ids`` whose hidden state predicts what follows.
        *Shape:* ``(num_queries,)``, int64
    :param gold_tokens: Token that follows. *Shape:* ``(num_queries,)``, int64
    :param is_phrase: Whether a phrase is the label; its first token is then neutral, otherwise the
        token is the only positive. *Shape:* ``(num_queries,)``, bool
    :param positive_offsets: Positives of query ``i`` are ``positive_spans[positive_offsets[i] :
        positive_offsets[i + 1]]``; one or more if and only if a phrase is the label. *Shape:*
        ``(num_queries + 1,)``, int64
    :param positive_spans: Flat ids of all occurrences of the right phrase. *Shape:*
        ``(num_positives,)``, int64
    :param neutral_offsets: As ``positive_offsets``. *Shape:* ``(num_queries + 1,)``, int64
    :param neutral_spans: Flat ids of spans that are not wrong, only shorter or longer than the
        label; left out of the softmax. *Shape:* ``(num_neutrals,)``, int64
    :param weights: Weight of each query in the phrase loss. *Shape:* ``(num_queries,)``, float32
    """

    token_ids: NDArray[np.int64]
    token_mask: NDArray[np.bool_]
    target_starts: NDArray[np.int64]
    piece_ids: NDArray[np.int64]
    piece_mask: NDArray[np.bool_]
    word_chunks: NDArray[np.int64]
    start_pieces: NDArray[np.int64]
    end_pieces: NDArray[np.int64]
    span_mask: NDArray[np.bool_]
    query_chunks: NDArray[np.int64]
    query_positions: NDArray[np.int64]
    gold_tokens: NDArray[np.int64]
    is_phrase: NDArray[np.bool_]
    positive_offsets: NDArray[np.int64]
    positive_spans: NDArray[np.int64]
    neutral_offsets: NDArray[np.int64]
    neutral_spans: NDArray[np.int64]
    weights: NDArray[np.float32]

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
        return len(self.word_chunks)

    @property
    def num_queries(self) -> int:
        """Number of positions that choose a segment."""
        return len(self.query_chunks)


def check_batch(batch: Batch) -> None:
    """Refuse a batch whose arrays do not fit together.

    The ``ValueError`` names the field.
    """
    wanted = {"span_mask": np.bool_, "weights": np.float32} | {
        name: np.bool_ for name in ("token_mask", "piece_mask", "is_phrase")
    }
    for field in fields(batch):
        array = getattr(batch, field.name)
        if array.dtype != wanted.get(field.name, np.int64):
            raise ValueError(f"{field.name} is {array.dtype}")
    words, queries = batch.num_words, batch.num_queries
    width = batch.span_mask.shape[1]
    shapes = {
        "token_mask": batch.token_ids.shape,
        "target_starts": (batch.num_chunks,),
        "piece_mask": batch.piece_ids.shape,
        "start_pieces": (words,),
        "end_pieces": (words,),
        "span_mask": (words, width),
        **dict.fromkeys(("query_positions", "gold_tokens", "is_phrase", "weights"), (queries,)),
        "positive_offsets": (queries + 1,),
        "neutral_offsets": (queries + 1,),
    }
    for name, shape in shapes.items():
        if getattr(batch, name).shape != shape:
            raise ValueError(f"{name} has shape {getattr(batch, name).shape}, not {shape}")
    limits = {
        "target_starts": batch.token_ids.shape[1] + 1,
        "word_chunks": batch.num_chunks,
        "start_pieces": batch.piece_ids.shape[1],
        "end_pieces": batch.piece_ids.shape[1],
        "query_chunks": batch.num_chunks,
        "query_positions": batch.token_ids.shape[1],
        "positive_spans": words * width,
        "neutral_spans": words * width,
    }
    for name, limit in limits.items():
        array = getattr(batch, name)
        if array.size and not 0 <= array.min() <= array.max() < limit:
            raise ValueError(f"{name} leaves [0, {limit})")
    _check_labels(batch)


def _check_labels(batch: Batch) -> None:
    width = batch.span_mask.shape[1]
    num_positives = np.diff(batch.positive_offsets)
    if not np.array_equal(num_positives > 0, batch.is_phrase):
        raise ValueError("positive_offsets must give every phrase, and nothing else, a span")
    owners = np.repeat(np.arange(batch.num_queries), num_positives)
    words = batch.positive_spans // width
    if not batch.span_mask.reshape(-1)[batch.positive_spans].all():
        raise ValueError("positive_spans holds a span that is not admissible")
    if (batch.word_chunks[words] == batch.query_chunks[owners]).any():
        raise ValueError("positive_spans holds a span of the query's own chunk")
