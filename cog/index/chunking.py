"""Chunking: a document goes in, its chunks come out, cut at word boundaries."""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from cog.hashing import hash_word
from cog.model.config import ModelConfig
from cog.model.words import WordSplitter, flag_words

MAX_BLOCK_CHARS = 1 << 18  # longer texts are tokenised in blocks, so that memory stays bounded


@dataclass(frozen=True, slots=True)
class Chunk:
    """A window of a document."""

    document_ordinal: int  # position of the document in the index
    text: str
    word_chars: NDArray[np.int32]  # (num_words + 1,) bounds of the words in the document
    word_tokens: NDArray[np.int32]  # (num_words + 1,) bounds of the words in `token_ids`
    token_ids: NDArray[np.int32]  # (num_tokens,) prefix-encoder tokens
    word_flags: NDArray[np.uint8]  # (num_words,) bits of `cog.model.words`

    @property
    def num_words(self) -> int:
        """Number of words."""
        return len(self.word_flags)

    def word_spans(self) -> NDArray[np.int32]:
        """Characters of each word, without its leading space. *Shape:* ``(num_words, 2)``."""
        bounds = self.word_chars - self.word_chars[0]
        spans: NDArray[np.int32] = np.stack([bounds[:-1], bounds[1:]], axis=1)
        spans[:, 0] += [self.text.startswith(" ", start) for start in bounds[:-1].tolist()]
        spans[:, 0] = np.minimum(spans[:, 0], spans[:, 1])
        return spans


@dataclass(frozen=True, slots=True)
class ChunkedBlock:
    """A part of a document cut into chunks."""

    chunks: list[Chunk]  # its chunks in order; empty if it has no words that fit
    skipped_words: int  # number of words longer than a chunk


def chunk_document(
    text: str, *, document_ordinal: int, splitter: WordSplitter, limits: ModelConfig
) -> Iterator[ChunkedBlock]:
    """Cut a document into chunks, block by block."""
    for start, end in iter_blocks(text, max_chars=MAX_BLOCK_CHARS):
        block = text[start:end]
        words = splitter.split(block)
        flags = flag_words(block, words.word_chars)
        spans, skipped_words = cut_chunks(
            words.word_tokens,
            max_tokens=limits.max_chunk_tokens,
            min_tokens=limits.min_chunk_tokens,
        )
        chunks = []
        for first, last in spans:
            chars = words.word_chars[first : last + 1]
            tokens = words.word_tokens[first : last + 1]
            chunks.append(
                Chunk(
                    document_ordinal=document_ordinal,
                    text=block[chars[0] : chars[-1]],
                    word_chars=chars + np.int32(start),
                    word_tokens=tokens - tokens[0],
                    token_ids=words.token_ids[tokens[0] : tokens[-1]],
                    word_flags=flags[first:last],
                )
            )
        yield ChunkedBlock(chunks, skipped_words)


def iter_blocks(text: str, *, max_chars: int) -> Iterator[tuple[int, int]]:
    """Cut a long text after a line feed, else before a space, else anywhere, into ranges [a, b)."""
    start = 0
    while len(text) - start > max_chars:
        newline = text.rfind("\n", start, start + max_chars) + 1
        end = max(newline, text.rfind(" ", start + 1, start + max_chars) if not newline else 0)
        end = end if end > start else start + max_chars
        yield start, end
        start = end
    if start < len(text):
        yield start, len(text)


def cut_chunks(
    word_tokens: NDArray[np.int32], *, max_tokens: int, min_tokens: int
) -> tuple[list[tuple[int, int]], int]:
    """Cut words into runs of at most ``max_tokens`` tokens.

    A last run under ``min_tokens`` is evened out with the one before it. A word that is longer than
    a chunk is left out, and no chunk reaches across it. Gives half-open word ranges, and the number
    of words left out. *Shape:* ``(num_words + 1,)`` bounds of the words in tokens
    """
    bounds = word_tokens.astype(np.int64)
    too_long = np.flatnonzero(np.diff(bounds) > max_tokens).tolist()
    edges = [-1, *too_long, len(bounds) - 1]
    spans: list[tuple[int, int]] = []
    for before, after in zip(edges, edges[1:], strict=False):
        spans += _cut_run(bounds, before + 1, after, max_tokens=max_tokens, min_tokens=min_tokens)
    return spans, len(too_long)


def _cut_run(
    bounds: NDArray[np.int64], first: int, last: int, *, max_tokens: int, min_tokens: int
) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    start = first
    while start < last:
        end = int(np.searchsorted(bounds, bounds[start] + max_tokens, side="right")) - 1
        spans.append((start, min(end, last)))
        start = spans[-1][1]
    if len(spans) > 1 and bounds[last] - bounds[spans[-1][0]] < min_tokens:
        start = spans[-2][0]
        spans[-2:] = _even_out(bounds, start, last, max_tokens=max_tokens)
    return spans


def _even_out(
    bounds: NDArray[np.int64], start: int, last: int, *, max_tokens: int
) -> list[tuple[int, int]]:
    # the word boundary nearest the middle that leaves both halves within the limit
    middle = (bounds[start] + bounds[last]) / 2
    cuts = np.arange(start + 1, last)
    left, right = bounds[cuts] - bounds[start], bounds[last] - bounds[cuts]
    cuts = cuts[(left <= max_tokens) & (right <= max_tokens)]
    cut = int(cuts[np.argmin(np.abs(bounds[cuts] - middle))])
    return [(start, cut), (cut, last)]


def hash_words(text: str, bounds: NDArray[np.int32]) -> NDArray[np.uint64]:
    """Hash the text of each word, leading space included: equal hash, equal text.

    *Shape:* ``(num_words + 1,)`` bounds of the words in characters to ``(num_words,)``
    """
    ends = bounds.tolist()
    hashes = [hash_word(text[a:b]) for a, b in zip(ends, ends[1:], strict=False)]
    return np.array(hashes, dtype=np.uint64)


def hash_content(text: str, word_chars: NDArray[np.int32]) -> bytes:
    """Hash what the vectors of a chunk depend on, its text and where its words lie, to 16 bytes.

    *Shape:* ``(num_words + 1,)`` bounds of its words in any text
    """
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16)
    digest.update(b"\xff")  # never a byte of UTF-8
    digest.update((word_chars - word_chars[0]).astype("<i4").tobytes())
    return digest.digest()
