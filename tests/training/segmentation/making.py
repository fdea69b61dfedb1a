"""Made chunks and texts for tests of segmentation."""

import numpy as np
from numpy.typing import NDArray

from cog.index.chunking import hash_words
from cog.model.words import flag_words
from cog.training.segmentation.records import ChunkWords


def make_chunk(
    words: list[str], *, document: int, hash_bits: int = 64, tokens_per_word: int = 2
) -> ChunkWords:
    """A chunk of given words; word i has 1 + i % tokens_per_word tokens."""
    text = "".join(words)
    chars = np.cumsum([0, *map(len, words)]).astype(np.int32)
    num_tokens = [1 + len(word) % tokens_per_word for word in words]
    word_tokens = np.cumsum([0, *num_tokens]).astype(np.int32)
    hashes = hash_words(text, chars) & np.uint64((1 << hash_bits) - 1)
    sizes = [len(word.encode()) for word in words]
    return ChunkWords(
        document=document,
        token_ids=(np.arange(word_tokens[-1]) * 7 + document).astype(np.int32),
        word_tokens=word_tokens,
        word_hashes=hashes,
        word_flags=flag_words(text, chars),
        text=text.encode(),
        word_bytes=np.cumsum([0, *sizes]).astype(np.int32),
    )


VOCABULARY = (" the", " river", " runs", ",", " of", " é", " stone.", ".", " a", " x1")


def random_words(random: np.random.Generator, *, num_words: int, vocab_size: int) -> list[str]:
    """Words of a small vocabulary, so that phrases repeat."""
    return [VOCABULARY[i] for i in random.integers(0, vocab_size, size=num_words)]


def spans_of(flags: NDArray[np.uint8], first: int, num_words: int, end: int) -> bool:
    """Whether a span may be copied, said plainly."""
    inside = [int(flag) for flag in flags[first : first + num_words]]
    if first + num_words > end or any(flag & 1 for flag in inside):
        return False
    return bool(inside[0] & 2) and bool(inside[-1] & 4)
