"""Gathered chunks with random vectors over few words, so that many phrases have the same text."""

import hashlib

import numpy as np

from cog.index.records import GatheredChunks
from cog.model.words import BARRED, CAN_END, CAN_START

FREE = int(CAN_START | CAN_END)
WORDS = {
    " river": FREE,
    " mill": FREE,
    " the": FREE,
    "bread": FREE,
    ",": 0,
    ".": int(BARRED),
    " (a": int(CAN_END),
    " b)": int(CAN_START),
}
DIM = 8


def word_hash(word: str) -> int:
    return int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little")


def make_chunks(
    seed: int, *, lengths: tuple[int, ...] = (12, 1, 9, 20), dtype: str = "int8"
) -> tuple[GatheredChunks, list[str]]:
    """Chunks, and the text of each of their words."""
    random = np.random.default_rng(seed)
    names = list(WORDS)
    words = [names[i] for i in random.integers(len(names), size=sum(lengths))]
    num_words = len(words)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    chars = np.zeros((num_words, 2), dtype=np.int32)
    for begin, end in zip(offsets[:-1], offsets[1:], strict=True):
        sizes = np.cumsum([0] + [len(word) for word in words[begin:end]])
        chars[begin:end, 0], chars[begin:end, 1] = sizes[:-1], sizes[1:]
    if dtype == "int8":
        vectors = random.integers(-127, 128, size=(2, num_words, DIM)).astype(np.int8)
        scales = random.uniform(0.001, 0.02, size=(2, num_words)).astype(np.float32)
    else:
        vectors = random.normal(size=(2, num_words, DIM)).astype(np.float16)
        scales = np.ones((2, num_words), dtype=np.float32)
    chunks = GatheredChunks(
        chunk_ids=np.arange(len(lengths)),
        document_ordinals=np.arange(len(lengths)) // 2,
        word_offsets=offsets.astype(np.int64),
        start_vectors=vectors[0],
        end_vectors=vectors[1],
        start_scales=scales[0],
        end_scales=scales[1],
        word_flags=np.array([WORDS[word] for word in words], dtype=np.uint8),
        word_hashes=np.array([word_hash(word) for word in words], dtype=np.uint64),
        word_chars=chars,
        word_tokens=np.stack([np.arange(num_words), np.arange(1, num_words + 1)], axis=1),
        token_ids=np.array([names.index(word) for word in words], dtype=np.int32),
    )
    return chunks, words


def plain_phrases(
    chunks: GatheredChunks, *, min_words: int, max_words: int
) -> list[tuple[int, int]]:
    """First and last word of every admissible phrase, by the definition."""
    found = []
    flags = chunks.word_flags
    for begin, end in zip(chunks.word_offsets[:-1], chunks.word_offsets[1:], strict=True):
        for first in range(begin, end):
            for last in range(first + min_words - 1, min(first + max_words, end)):
                inside = flags[first : last + 1]
                if (
                    (inside & BARRED).any()
                    or not flags[first] & CAN_START
                    or not flags[last] & CAN_END
                ):
                    continue
                found.append((int(first), int(last)))
    return found
