"""Pools: what a prefix may copy from, and where the end of a text stands in it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from cog.decoding.candidates import Phrases
from cog.decoding.names import Names
from cog.decoding.scoring import WordScorer
from cog.index.records import GatheredChunks


@dataclass(frozen=True, slots=True)
class Agreement:
    """Places where what stands before a token is what a text ends with.

    :param positions: The tokens, by their place in those of the pool, ascending. *Shape:*
        ``(num_places,)`` int64
    :param words: The word that each is of: where it is not the first of it, the text ends within
        that word. *Shape:* ``(num_places,)`` int64
    :param num_tokens: How many tokens before each agree, or as many as the place is worth.
        *Shape:* ``(num_places,)``
    """

    positions: NDArray[np.int64]
    words: NDArray[np.int64]
    num_tokens: NDArray[np.int64] | NDArray[np.float64]

    def select(self, chosen: NDArray[np.bool_]) -> "Agreement":
        """Some of the places."""
        return Agreement(self.positions[chosen], self.words[chosen], self.num_tokens[chosen])

    def beyond(self, num_tokens: int) -> "Agreement":
        """The places where more than a few tokens agree."""
        return self.select(self.num_tokens > num_tokens)

    def at(self, position: int) -> float:
        """How many tokens before a token agree."""
        place = int(np.searchsorted(self.positions, position))
        is_there = place < len(self.positions) and self.positions[place] == position
        return float(self.num_tokens[place]) if is_there else 0.0


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Pool:
    """What a prefix may copy from: the words of its retrieved chunks and the phrases they form.

    Chunks that follow each other in a document lie side by side and form a run.

    :param chunks: The gathered words.
    :param phrases: Their admissible phrases.
    :param scorer: Scores the words that begin or end a phrase.
    :param similarities: Similarity of each word's document to the prefix: that of its best chunk.
        *Shape:* ``(num_words,)`` float32
    :param nearest: Similarity of the nearest document; 1 if there is none.
    :param word_bits: Information of each word. *Shape:* ``(num_words,)`` float32
    :param run_starts: First word of each word's run. *Shape:* ``(num_words,)`` int64
    :param run_ends: One past the last word of its run. *Shape:* ``(num_words,)`` int64
    :param token_words: The word that each token is of. *Shape:* ``(num_tokens,)`` int64
    :param tokens_before: The token before each token, -1 where its run begins. *Shape:*
        ``(num_tokens,)`` int32
    :param names: What is guarded; None if nothing is.
    :param first_tokens: First token of each word that begins a phrase. *Shape:* ``(num_begins,)``
        int64
    :param has_space: Whether such a word brings its space. *Shape:* ``(num_begins,)`` bool
    """

    chunks: GatheredChunks
    phrases: Phrases
    scorer: WordScorer
    similarities: NDArray[np.float32]
    nearest: float
    word_bits: NDArray[np.float32]
    run_starts: NDArray[np.int64]
    run_ends: NDArray[np.int64]
    token_words: NDArray[np.int64]
    tokens_before: NDArray[np.int32]
    names: Names | None
    first_tokens: Tensor
    has_space: Tensor

    @property
    def num_words(self) -> int:
        """Number of words."""
        return len(self.word_bits)

    @property
    def begins(self) -> NDArray[np.int64]:
        """First token of each word, by its place in those of the pool."""
        return self.chunks.word_tokens[:, 0]

    def find_agreement(self, token_ids: Sequence[int]) -> Agreement:
        """Find the tokens before which stands one or more of a text's last tokens."""
        last = token_ids[-1] if token_ids else -2
        positions = np.flatnonzero(self.tokens_before == last)
        words = self.token_words[positions]
        num_tokens = np.ones(len(positions), dtype=np.int64)
        places = np.arange(len(positions))
        run_begins = self.begins[self.run_starts[words]]
        for depth in range(1, len(token_ids)):
            before = positions[places] - 1 - depth
            inside = before >= run_begins[places]
            places, before = places[inside], before[inside]
            places = places[self.chunks.token_ids[before] == token_ids[-1 - depth]]
            if not len(places):
                break
            num_tokens[places] = depth + 1
        return Agreement(positions, words, num_tokens)

    def get_place(self, word: int) -> tuple[int, int]:
        """The position of a word's document in the index, and its first character there."""
        chunk = int(np.searchsorted(self.chunks.word_offsets, word, side="right")) - 1
        return int(self.chunks.document_ordinals[chunk]), int(self.chunks.word_chars[word, 0])

    @property
    def num_bytes(self) -> int:
        """Bytes of memory of the words' vectors and of the phrases, as stored."""
        vectors = self.chunks.start_vectors.nbytes + self.chunks.end_vectors.nbytes
        listed = self.phrases
        return vectors + listed.first.nbytes + listed.last.nbytes + listed.repeated_bounds.nbytes
