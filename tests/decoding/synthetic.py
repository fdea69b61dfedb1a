"""Gathered chunks with random vectors over few words, so that many phrases have the same text."""

import hashlib
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from cog.decoding.pool import Pool
from cog.decoding.pool_source import PoolSource
from cog.index.records import GatheredChunks
from cog.model.words import BARRED, CAN_END, CAN_START, SPECIFIC
from cog.records import Decoding

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
    " Ada": FREE | int(SPECIFIC),
    " mist": FREE,
}
SPELLED = {" river": (" ri", "ve", "r"), " mill": (" mi", "ll"), " mist": (" mi", "st")}
TOKENS = tuple(dict.fromkeys(piece for word in WORDS for piece in SPELLED.get(word, (word,))))
BITS = {" the": 1.0, ",": 1.0, " river": 6.0, " mill": 9.0}  # of other words 4
DIM = 8
PAPER = Decoding("greedy", 0.95, 0, 24, 4, 0.0)


def word_hash(word: str) -> int:
    return int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little")


def lay_out(
    texts: list[list[list[str]]], *, dtype: str = "int8", seed: int = 0, gap: int = 0
) -> GatheredChunks:
    """Chunks of documents, as an index gathers them, with random vectors.

    :param texts: Words by document and chunk.
    :param dtype: Of the vectors.
    :param seed: Of the vectors.
    :param gap: Number of characters that are missing between two chunks of a document.
    """
    random = np.random.default_rng(seed)
    lengths = [len(chunk) for document in texts for chunk in document]
    words = [word for document in texts for chunk in document for word in chunk]
    chars: list[tuple[int, int]] = []
    for document in texts:
        end = 0
        for chunk in document:
            for word in chunk:
                chars.append((end, end + len(word)))
                end += len(word)
            end += gap
    pieces = [SPELLED.get(word, (word,)) for word in words]
    ends = np.cumsum([0, *map(len, pieces)], dtype=np.int64)
    num_words = len(words)
    if dtype == "int8":
        vectors = random.integers(-127, 128, size=(2, num_words, DIM)).astype(np.int8)
        scales = random.uniform(0.001, 0.02, size=(2, num_words)).astype(np.float32)
    else:
        vectors = random.normal(size=(2, num_words, DIM)).astype(np.float16)
        scales = np.ones((2, num_words), dtype=np.float32)
    return GatheredChunks(
        chunk_ids=np.arange(len(lengths)),
        document_ordinals=np.repeat(np.arange(len(texts)), [len(each) for each in texts]),
        word_offsets=np.cumsum([0, *lengths], dtype=np.int64),
        start_vectors=vectors[0],
        end_vectors=vectors[1],
        start_scales=scales[0],
        end_scales=scales[1],
        word_flags=np.array([WORDS.get(word, FREE) for word in words], dtype=np.uint8),
        word_hashes=np.array([word_hash(word) for word in words], dtype=np.uint64),
        word_chars=np.array(chars, dtype=np.int32).reshape(-1, 2),
        word_tokens=np.stack([ends[:-1], ends[1:]], axis=1),
        token_ids=np.array([TOKENS.index(p) for word in pieces for p in word], dtype=np.int32),
    )


def make_chunks(
    seed: int, *, lengths: tuple[int, ...] = (12, 1, 9, 20), dtype: str = "int8", gap: int = 0
) -> tuple[GatheredChunks, list[str]]:
    """Chunks, two a document, and the text of each of their words."""
    random = np.random.default_rng(seed)
    names = list(WORDS)
    chunks = [[names[i] for i in random.integers(len(names), size=length)] for length in lengths]
    texts = [chunks[i : i + 2] for i in range(0, len(chunks), 2)]
    return lay_out(texts, dtype=dtype, seed=seed, gap=gap), [w for chunk in chunks for w in chunk]


class _Index:
    # what a pool asks of an index beside its words
    def get_word_bits(self, word_hashes: NDArray[np.uint64]) -> NDArray[np.float32]:
        bits = {word_hash(word): value for word, value in BITS.items()}
        return np.array([bits.get(each, 4.0) for each in word_hashes.tolist()], dtype=np.float32)


class _Splitter:
    token_bytes = tuple(token.encode() for token in TOKENS)

    def decode(self, token_ids: NDArray[np.int32]) -> bytes:
        return b"".join(self.token_bytes[int(i)] for i in token_ids)


def make_pool(
    chunks: GatheredChunks,
    decoding: Decoding = PAPER,
    *,
    similarities: dict[int, float] | None = None,
    max_words: int = 4,
) -> Pool:
    """The pool of some chunks, made as a generator makes it."""
    model = SimpleNamespace(
        config=SimpleNamespace(min_phrase_words=2, max_phrase_words=max_words),
        prefix_encoder=SimpleNamespace(device=torch.device("cpu")),
        splitter=_Splitter(),
    )
    source = PoolSource(cast(Any, model), cast(Any, _Index()), allowed_chunks=None)
    return source.make_pool(chunks, similarities or {}, decoding)


def plain_phrases(
    chunks: GatheredChunks,
    *,
    min_words: int,
    max_words: int,
    word_bits: NDArray[np.float32] | None = None,
    min_bits: float = 0.0,
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
                    or (word_bits is not None and word_bits[first : last + 1].sum() < min_bits)
                ):
                    continue
                found.append((int(first), int(last)))
    return found


def plain_agreement(chunks: GatheredChunks, token_ids: list[int]) -> dict[int, int]:
    """How many tokens before each token are what a text ends with, one by one."""
    found: dict[int, int] = {}
    run_begin = 0
    for k in range(len(chunks.chunk_ids)):
        first, end = chunks.word_offsets[k : k + 2].tolist()
        follows = (
            k > 0
            and chunks.document_ordinals[k] == chunks.document_ordinals[k - 1]
            and chunks.word_chars[first, 0] == chunks.word_chars[first - 1, 1]
        )
        run_begin = run_begin if follows else int(chunks.word_tokens[first, 0])
        begin, stop = int(chunks.word_tokens[first, 0]), int(chunks.word_tokens[end - 1, 1])
        for position in range(begin, stop):
            before = chunks.token_ids[run_begin:position].tolist()
            count = 0
            while (
                count < min(len(before), len(token_ids))
                and before[-1 - count] == token_ids[-1 - count]
            ):
                count += 1
            if count:
                found[position] = count
    return found
