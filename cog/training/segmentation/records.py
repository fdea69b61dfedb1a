"""Records of in-batch segmentation: the words of chunks go in, the labels of a batch come out."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cog.profiles import LoopProfile


@dataclass(frozen=True, slots=True)
class ChunkWords:
    """The words of one training chunk."""

    document: int  # number of its document; chunks of one document are never copied from each other
    token_ids: NDArray[np.int32]  # (num_tokens,) prefix-encoder tokens, no special ones
    # (num_words + 1,) word `i` is tokens `[word_tokens[i], word_tokens[i + 1])`, from 0 on
    word_tokens: NDArray[np.int32]
    # (num_words,) hash of each word's text; equal texts have equal hashes, the converse is checked
    word_hashes: NDArray[np.uint64]
    # (num_words,) bits of `cog.model.words`; a word that the phrase encoder does not see is barred
    word_flags: NDArray[np.uint8]
    text: bytes
    # (num_words + 1,) word `i` is `text[word_bytes[i]:word_bytes[i + 1]]`
    word_bytes: NDArray[np.int32]

    @property
    def num_words(self) -> int:
        """Number of words."""
        return len(self.word_flags)


@dataclass(frozen=True, slots=True)
class BatchRules:
    """What decides how chunks become a batch: which positions are queries, what counts how much."""

    begin_token_id: int | None  # token put before every chunk; None for none
    min_phrase_words: int
    max_phrase_words: int
    loop: LoopProfile
    # whether queries inside words may lie in the words of a phrase. If not, all positions inside
    # words and no wanted prefix make queries the choices that write the chunk, each once
    inner_of_copies: bool


@dataclass(frozen=True, slots=True)
class BatchLabels:
    """What every query of a batch of chunks should choose.

    A span has the flat id ``word * (max_phrase_words - 1) + k``: it begins at word ``word`` of the
    batch (words of all chunks in order) and has ``k + 2`` words. Those of a query's own chunk are
    never its candidates.
    """

    word_chunks: NDArray[np.int64]  # (num_words,) chunk of each word, ascending
    # (num_words, max_phrase_words - 1) whether the span of `k + 2` words from a word may be copied:
    # inside its chunk, every word with a piece, flags obeyed
    span_mask: NDArray[np.bool_]
    query_chunks: NDArray[np.int64]  # (num_queries,) chunk of each query
    # (num_queries,) column of `Batch.token_ids` whose hidden state predicts what follows
    query_positions: NDArray[np.int64]
    gold_tokens: NDArray[np.int64]  # (num_queries,) token that follows
    # (num_queries,) whether a phrase is the label; its first token is then neutral, otherwise the
    # token is the only positive
    is_phrase: NDArray[np.bool_]
    # (num_queries + 1,) positives of query `i` are `positive_spans[offsets[i]:offsets[i + 1]]`;
    # none where the label is a token
    positive_offsets: NDArray[np.int64]
    # (num_positives,) all occurrences of the phrase in other documents, ascending per query
    positive_spans: NDArray[np.int64]
    neutral_offsets: NDArray[np.int64]  # (num_queries + 1,) as `positive_offsets`
    # (num_neutrals,) spans that are neither right nor wrong, ascending per query: shorter than the
    # phrase but true, true in another chunk of the same document, or true up to the end of the
    # query's chunk and longer
    neutral_spans: NDArray[np.int64]
    weights: NDArray[np.float32]  # (num_queries,) weight of each query in the phrase loss
