"""Records of in-batch segmentation: the words of chunks go in, the labels of a batch come out."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cog.index.chunking import Chunk, hash_words


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

    @classmethod
    def from_chunk(cls, chunk: Chunk) -> "ChunkWords":
        """Take the words of a chunk as the index cuts it.

        Its ``document_ordinal`` becomes ``document``.
        """
        bounds = chunk.word_chars - chunk.word_chars[0]
        text = chunk.text.encode("utf-8")
        return cls(
            document=chunk.document_ordinal,
            token_ids=chunk.token_ids,
            word_tokens=chunk.word_tokens,
            word_hashes=hash_words(chunk.text, bounds),
            word_flags=chunk.word_flags,
            text=text,
            word_bytes=char_to_byte(text, bounds),
        )

    @property
    def num_words(self) -> int:
        """Number of words."""
        return len(self.word_flags)

    def phrase_text(self, first: int, num_words: int) -> bytes:
        """The exact text of a span."""
        return self.text[self.word_bytes[first] : self.word_bytes[first + num_words]]


@dataclass(frozen=True, slots=True)
class BatchLabels:
    """What every query of a batch of chunks should choose; the fields of ``Batch`` and a few more.

    A span has the flat id ``word * (max_phrase_words - 1) + k``: it begins at word ``word`` of the
    batch (words of all chunks in order) and has ``k + 2`` words.

    :param word_chunks: Chunk of each word. *Shape:* ``(num_words,)`` int64
    :param span_mask: Whether the span of ``k + 2`` words from word ``w`` may be copied.
        *Shape:* ``(num_words, max_phrase_words - 1)`` bool
    :param query_chunks: Row of each query. *Shape:* ``(num_queries,)`` int64
    :param query_positions: Column of each query in the row of prefix tokens (begin token included):
        its hidden state predicts what follows. *Shape:* ``(num_queries,)`` int64
    :param query_words: Word of the batch that begins at the query; -1 inside words.
        *Shape:* ``(num_queries,)`` int64
    :param gold_tokens: The next token. *Shape:* ``(num_queries,)`` int64
    :param is_phrase: Whether a phrase is the label. *Shape:* ``(num_queries,)`` bool
    :param phrase_words: Number of words of that phrase; 0 where the label is a token.
        *Shape:* ``(num_queries,)`` int64
    :param positive_offsets: Positives of query ``i`` are ``positive_spans[offsets[i]:offsets[i +
        1]]``; none where the label is a token. *Shape:* ``(num_queries + 1,)`` int64
    :param positive_spans: All occurrences of the phrase in other documents, ascending per query.
        *Shape:* ``(num_positives,)`` int64
    :param neutral_offsets: The same for neutral spans. *Shape:* ``(num_queries + 1,)`` int64
    :param neutral_spans: Spans that are neither right nor wrong, ascending per query: shorter than
        the phrase but true, true in another chunk of the same document, or true up to the end of
        the query's chunk and longer. *Shape:* ``(num_neutrals,)`` int64
    :param weights: Weight of each query in the loss. *Shape:* ``(num_queries,)`` float32
    """

    word_chunks: NDArray[np.int64]
    span_mask: NDArray[np.bool_]
    query_chunks: NDArray[np.int64]
    query_positions: NDArray[np.int64]
    query_words: NDArray[np.int64]
    gold_tokens: NDArray[np.int64]
    is_phrase: NDArray[np.bool_]
    phrase_words: NDArray[np.int64]
    positive_offsets: NDArray[np.int64]
    positive_spans: NDArray[np.int64]
    neutral_offsets: NDArray[np.int64]
    neutral_spans: NDArray[np.int64]
    weights: NDArray[np.float32]


def char_to_byte(text: bytes, chars: NDArray[np.int32]) -> NDArray[np.int32]:
    """Turn character offsets into byte offsets.

    :param text: A text, UTF-8.
    :param chars: Character offsets in it, the end included. *Shape:* ``(num_offsets,)``
    :returns: Byte offsets. *Shape:* ``(num_offsets,)``
    """
    if text.isascii():
        return chars.astype(np.int32)
    raw = np.frombuffer(text, dtype=np.uint8)
    leads = np.append(np.flatnonzero((raw & 0xC0) != 0x80), len(raw))
    return leads[chars].astype(np.int32)
