"""Encoding: a window of chunks goes in, their vectors as they are stored come out."""

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cog.errors import IndexingError
from cog.index.chunking import Chunk
from cog.index.tables.quantise import StoredVectors, get_vector_type, quantise
from cog.model.protocols import ChunkEncoder, Retriever
from cog.model.vector_code import VectorCode, VectorCodes
from cog.model.words import BARRED

NO_VECTOR = np.zeros(0, dtype=np.float32)
PROBES = ((64, 6), (15, 20))  # words of a text, texts of a batch
PROBE_WORDS = ("river", "house", "stone", "apple", "cloud", "paper", "glass", "wheel", "tea")


@dataclass(frozen=True, slots=True)
class EncodedChunk:
    """A chunk with its vectors."""

    chunk: Chunk
    start: StoredVectors  # stored start vectors of its words
    end: StoredVectors  # stored end vectors of its words
    word_flags: NDArray[np.uint8]  # the chunk's flags, with words barred that have no WordPiece
    vector: NDArray[np.floating[Any]]  # (retriever_dim,) retriever vector, as it is stored


@dataclass(frozen=True, slots=True)
class Encoders:
    """What encodes chunks, and how."""

    phrase_encoder: ChunkEncoder
    retriever: Retriever
    batch_tokens: int  # number of WordPieces of a batch, at most
    vector_dtype: str
    codes: VectorCodes | None = None  # of `compact` vectors
    num_workers: int = 1  # batches encoded side by side
    is_alone: bool = False  # whether every chunk is a batch of its own


def encode_window(
    chunks: Sequence[Chunk], *, encoders: Encoders
) -> Iterator[tuple[int, EncodedChunk]]:
    """Encode chunks in batches of equal length, so that nothing is padded.

    Yields position in the window, and the encoded chunk.
    """
    with ThreadPoolExecutor(encoders.num_workers, "encode") as pool:
        kind = get_vector_type(encoders.vector_dtype)
        vectors = np.zeros((len(chunks), encoders.retriever.dim), dtype=kind)
        plan = _plan(chunks, encoders.retriever, encoders)
        texts = [[chunks[i].text for i in batch] for batch in plan]
        for batch, block in zip(
            plan, pool.map(encoders.retriever.encode_texts, texts), strict=True
        ):
            vectors[batch] = _check_finite(block, "retriever")
        plan = _plan(chunks, encoders.phrase_encoder, encoders)
        members = [[chunks[i] for i in batch] for batch in plan]
        encode = partial(_encode_words, encoders=encoders)
        for batch, encoded in zip(plan, pool.map(encode, members), strict=True):
            for position, words in zip(batch, encoded, strict=True):
                yield position, replace(words, vector=vectors[position])


def _encode_words(chunks: list[Chunk], *, encoders: Encoders) -> list[EncodedChunk]:
    texts = [chunk.text for chunk in chunks]
    spans = [chunk.word_spans() for chunk in chunks]
    encoded = encoders.phrase_encoder.encode_chunks(texts, spans)
    dtype, codes = encoders.vector_dtype, encoders.codes
    starts = _store(
        [words.start for words in encoded], dtype, None if codes is None else codes.start
    )
    ends = _store([words.end for words in encoded], dtype, None if codes is None else codes.end)
    bounds = np.cumsum([0, *(chunk.num_words for chunk in chunks)]).tolist()
    return [
        EncodedChunk(
            chunk=chunk,
            start=_slice(starts, first, last),
            end=_slice(ends, first, last),
            word_flags=chunk.word_flags | np.where(words.has_piece, np.uint8(0), BARRED),
            vector=NO_VECTOR,
        )
        for chunk, words, first, last in zip(chunks, encoded, bounds, bounds[1:], strict=False)
    ]


def measure_batch_change(phrase_encoder: ChunkEncoder, retriever: Retriever) -> float:
    """How far a vector moves when its chunk is encoded in a batch instead of alone.

    Tried on texts of its own, so that the answer is the same for every build of a machine.

    Gives the largest change of a value as a share of the largest value of its vector; 0 only if all
    vectors are the same bytes.
    """
    change = 0.0
    for num_words, num_texts in PROBES:
        words = (PROBE_WORDS * num_words)[:num_words]
        rotated = [words[i % num_words :] + words[: i % num_words] for i in range(num_texts)]
        texts = [" ".join(each) for each in rotated]
        spans = [_find_spans(text) for text in texts]
        (alone,) = phrase_encoder.encode_chunks(texts[-1:], spans[-1:])
        together = phrase_encoder.encode_chunks(texts, spans)[-1]
        for one, other in (
            (alone.start, together.start),
            (alone.end, together.end),
            (retriever.encode_texts(texts[-1:]), retriever.encode_texts(texts)[-1:]),
        ):
            if one.tobytes() != other.tobytes():
                moved = np.abs(one - other).max(axis=1) / np.abs(one).max(axis=1)
                change = max(change, float(moved.max()), float(np.finfo(np.float32).tiny))
    return change


def _find_spans(text: str) -> NDArray[np.int32]:
    return np.array([match.span() for match in re.finditer(r"\S+", text)], dtype=np.int32)


def _plan(
    chunks: Sequence[Chunk], encoder: ChunkEncoder | Retriever, encoders: Encoders
) -> list[list[int]]:
    lengths = encoder.count_pieces([chunk.text for chunk in chunks])
    batch_tokens = 0 if encoders.is_alone else encoders.batch_tokens
    return list(plan_batches(lengths, batch_tokens=batch_tokens))


def plan_batches(lengths: NDArray[np.int64], *, batch_tokens: int) -> Iterator[list[int]]:
    """Put chunks of equal length together, the longest first.

    A chunk is never padded: padding would change the last bits of its vectors.

    :param lengths: WordPieces of each chunk. *Shape:* ``(num_chunks,)``
    :param batch_tokens: Number of WordPieces of a batch, at most; a batch has one chunk at least.
    :yields: Positions of the chunks of a batch; every chunk is in one.
    """
    order = np.argsort(-lengths, kind="stable")
    for group in np.split(order, np.flatnonzero(np.diff(lengths[order])) + 1):
        if len(group):
            size = max(1, batch_tokens // max(1, int(lengths[group[0]])))
            for first in range(0, len(group), size):
                yield group[first : first + size].tolist()


def _store(
    vectors: Sequence[NDArray[np.float32]], dtype: str, code: VectorCode | None
) -> StoredVectors:
    finite = _check_finite(np.concatenate(vectors), "phrase encoder")
    return quantise(finite, dtype=dtype, code=code)


def _check_finite(vectors: NDArray[np.float32], encoder: str) -> NDArray[np.float32]:
    if not np.isfinite(vectors).all():
        raise IndexingError(
            f"the {encoder}'s vectors must be finite",
            found="a value that is not",
            run="check the model's weights",
        )
    return np.asarray(vectors, dtype=np.float32)


def _slice(stored: StoredVectors, first: int, last: int) -> StoredVectors:
    return StoredVectors(stored.vectors[first:last], stored.scales[first:last])
