"""Records of in-batch segmentation: the words of chunks go in, the labels of a batch come out."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cog.profiles import LoopProfile


@dataclass(frozen=True, slots=True)
class ChunkWords:
    """The words of one training chunk.

    :param document: Number of its document; chunks of one document are never copied from each
        other.
    :param token_ids: Prefix-encoder tokens, no special ones. *Shape:* ``(num_tokens,)`` int32
    :param word_tokens: Word ``i`` is tokens ``[word_tokens[i], word_tokens[i + 1])``; the first
        bound is 0. *Shape:* ``(num_words + 1,)`` int32
    :param word_hashes: Hash of each word's text; equal texts have equal hashes, the converse is
        checked. *Shape:* ``(num_words,)`` uint64
    :param word_flags: Bits of ``cog.model.words``; a word that the phrase encoder does not see has
        ``BARRED``. *Shape:* ``(num_words,)`` uint8
    :param word_bytes: Word ``i`` is ``text[word_bytes[i]:word_bytes[i + 1]]``. *Shape:*
        ``(num_words + 1,)`` int32
    """

    document: int
    token_ids: NDArray[np.int32]
    word_tokens: NDArray[np.int32]
    word_hashes: NDArray[np.uint64]
    word_flags: NDArray[np.uint8]
    text: bytes
    word_bytes: NDArray[np.int32]

    @property
    def num_words(self) -> int:
        """Number of words."""
        return len(self.word_flags)


@dataclass(frozen=True, slots=True)
class BatchRules:
    """What decides how chunks become a batch: which positions are queries, what counts how much.

    :param begin_token_id: Token put before every chunk; None for none.
    :param inner_of_copies: Whether queries inside words may lie in the words of a phrase. If not,
        all positions inside words and no wanted prefix make queries the choices that write the
        chunk, each once.
    """

    begin_token_id: int | None
    min_phrase_words: int
    max_phrase_words: int
    loop: LoopProfile
    inner_of_copies: bool


@dataclass(frozen=True, slots=True)
class BatchLabels:
    """What every query of a batch of chunks should choose.

    A span has the flat id ``word * (max_phrase_words - 1) + k``: it begins at word ``word`` of the
    batch (words of all chunks in order) and has ``k + 2`` words. Those of a query's own chunk are
    never its candidates.

    :param word_chunks: Chunk of each word, ascending. *Shape:* ``(num_words,)``
    :param span_mask: Whether the span of ``k + 2`` words from a word may be copied: inside its
        chunk, every word with a piece, flags obeyed. *Shape:* ``(num_words, max_phrase_words - 1)``
    :param query_chunks: Chunk of each query. *Shape:* ``(num_queries,)``
    :param query_positions: Column of ``Batch.token_ids`` whose hidden state predicts what follows.
        *Shape:* ``(num_queries,)``
    :param gold_tokens: Token that follows. *Shape:* ``(num_queries,)``
    :param is_phrase: Whether a phrase is the label; its first token is then neutral, otherwise the
        token is the only positive. *Shape:* ``(num_queries,)``
    :param positive_offsets: Positives of query ``i`` are ``positive_spans[offsets[i]:offsets[i +
        1]]``; none where the label is a token. *Shape:* ``(num_queries + 1,)``
    :param positive_spans: All occurrences of the phrase in other documents, ascending per query.
        *Shape:* ``(num_positives,)``
    :param neutral_offsets: As ``positive_offsets``. *Shape:* ``(num_queries + 1,)``
    :param neutral_spans: Spans that are neither right nor wrong, ascending per query: shorter than
        the phrase but true, true in another chunk of the same document, or true up to the end of
        the query's chunk and longer. *Shape:* ``(num_neutrals,)``
    :param weights: Weight of each query in the phrase loss. *Shape:* ``(num_queries,)``
    """

    word_chunks: NDArray[np.int64]
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
