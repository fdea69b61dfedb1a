"""Encoding: a window of chunks goes in, their vectors as they are stored come out.

A window is cut into batches here; who encodes them, on this machine or on many, is a pool.
"""

import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, TypeVarTuple

import numpy as np
from numpy.typing import NDArray

from cog.errors import IndexingError
from cog.index.chunking import Chunk
from cog.index.tables.quantise import StoredVectors, get_vector_type, quantise
from cog.model.protocols import Retriever
from cog.model.vector_code import VectorCode, VectorCodes
from cog.model.words import BARRED

if TYPE_CHECKING:
    from cog.model.load import IndexModel  # torch, which an index is read without
    from cog.model.phrase_encoder import PhraseEncoder

T = TypeVar("T")
Args = TypeVarTuple("Args")
NO_VECTOR = np.zeros(0, dtype=np.float32)
PROBES = ((64, 6), (15, 20), (2, 30), (1, 3))  # words of a text, texts of a batch
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
    """What a pool has: it encodes batches, and knows nothing of windows."""

    phrase_encoder: "PhraseEncoder"
    retriever: Retriever
    vector_dtype: str
    codes: VectorCodes | None = None  # of `compact` vectors

    def encode_texts(self, batches: Sequence[list[str]]) -> list[NDArray[np.float32]]:
        """Give the retriever's vectors of the texts of batches."""
        return [_check_finite(self.retriever.encode_texts(each), "retriever") for each in batches]

    def measure_batch_change(self) -> float:
        """How far a vector moves when its chunk is encoded in a batch instead of alone.

        Tried on texts of its own, so that the answer is the same for every build of a machine.
        Gives the largest change of a value as a share of the largest value of its vector; 0 only if
        all vectors are the same bytes.
        """
        encode_chunks, encode_texts = self.phrase_encoder.encode_chunks, self.retriever.encode_texts
        change = 0.0
        for num_words, num_texts in PROBES:
            words = (PROBE_WORDS * num_words)[:num_words]
            rotated = [words[i % num_words :] + words[: i % num_words] for i in range(num_texts)]
            texts = [" ".join(each) for each in rotated]
            spans = [_find_spans(text) for text in texts]
            (alone,) = encode_chunks(texts[-1:], spans[-1:])
            together = encode_chunks(texts, spans)[-1]
            for one, other in (
                (alone.start, together.start),
                (alone.end, together.end),
                (encode_texts(texts[-1:]), encode_texts(texts)[-1:]),
            ):
                if one.tobytes() != other.tobytes():
                    moved = np.abs(one - other).max(axis=1) / np.abs(one).max(axis=1)
                    change = max(change, float(moved.max()), float(np.finfo(np.float32).tiny))
        return change

    def encode_words(self, batches: Sequence[list[Chunk]]) -> list[list[EncodedChunk]]:
        """Encode the words of the chunks of batches; the retriever's vectors are left out."""
        return [self._encode_words(chunks) for chunks in batches]

    def _encode_words(self, chunks: list[Chunk]) -> list[EncodedChunk]:
        texts = [chunk.text for chunk in chunks]
        spans = [chunk.word_spans() for chunk in chunks]
        encoded = self.phrase_encoder.encode_chunks(texts, spans)
        codes = (self.codes.start, self.codes.end) if self.codes else (None, None)
        starts = self._store([words.start for words in encoded], codes[0])
        ends = self._store([words.end for words in encoded], codes[1])
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

    def _store(
        self, vectors: Sequence[NDArray[np.float32]], code: VectorCode | None
    ) -> StoredVectors:
        finite = _check_finite(np.concatenate(vectors), "phrase encoder")
        return quantise(finite, dtype=self.vector_dtype, code=code)


class Pool(Protocol):
    """Those that encode, side by side."""

    @property
    def num_windows(self) -> int:
        """Number of windows that are begun before the first of them is done."""

    @property
    def task_pieces(self) -> int:
        """Number of WordPieces that are handed over at once, at least; 0 for one batch."""

    def submit(self, method: Callable[[Encoders, *Args], T], *args: *Args) -> "Future[T]":
        """Have one of them call a method of its encoders; what comes first begins first."""


OpenPool = Callable[["IndexModel", Encoders], AbstractContextManager[Pool]]


@dataclass(frozen=True, slots=True)
class LocalPool:
    """Threads of this process."""

    encoders: Encoders
    threads: ThreadPoolExecutor
    num_windows: int = 1
    task_pieces: int = 0

    def submit(self, method: Callable[[Encoders, *Args], T], *args: *Args) -> "Future[T]":
        """Have a thread call a method of the encoders."""
        return self.threads.submit(method, self.encoders, *args)


@contextmanager
def open_local_pool(model: "IndexModel", encoders: Encoders) -> Iterator[Pool]:
    """Encode in threads of this process, as many as the model takes."""
    with model.pin_threads() as num_workers:
        threads = ThreadPoolExecutor(num_workers, "encode")
        try:
            yield LocalPool(encoders, threads)
        finally:
            threads.shutdown(cancel_futures=True)


class PendingChunks:
    """Chunks of a window, cut into batches of equal length, which a pool encodes meanwhile.

    A batch has ``batch_tokens`` WordPieces at most; 0: every chunk is one.
    """

    def __init__(
        self, chunks: Sequence[Chunk], *, encoders: Encoders, pool: Pool, batch_tokens: int
    ) -> None:
        self._num_chunks = len(chunks)
        self._encoders = encoders
        texts = [chunk.text for chunk in chunks]
        self._texts = deque(
            (batches, pool.submit(Encoders.encode_texts, [[texts[i] for i in b] for b in batches]))
            for batches in _plan(texts, encoders.retriever, pool, batch_tokens)
        )
        self._words = deque(
            (batches, pool.submit(Encoders.encode_words, [[chunks[i] for i in b] for b in batches]))
            for batches in _plan(texts, encoders.phrase_encoder, pool, batch_tokens)
        )

    def iter_encoded(self) -> Iterator[tuple[int, EncodedChunk]]:
        """Yield position in the window and encoded chunk, as they are done; once."""
        kind = get_vector_type(self._encoders.vector_dtype)
        vectors = np.zeros((self._num_chunks, self._encoders.retriever.dim), dtype=kind)
        for batches, blocks in _take(self._texts):
            for batch, block in zip(batches, blocks, strict=True):
                vectors[batch] = block
        for batches, encoded in _take(self._words):
            for batch, members in zip(batches, encoded, strict=True):
                for position, words in zip(batch, members, strict=True):
                    yield position, replace(words, vector=vectors[position])


def _take(
    tasks: "deque[tuple[list[list[int]], Future[list[T]]]]",
) -> Iterator[tuple[list[list[int]], list[T]]]:
    # what was taken is let go, so that a window is in memory once
    while tasks:
        batches, future = tasks.popleft()
        yield batches, future.result()


def _find_spans(text: str) -> NDArray[np.int32]:
    return np.array([match.span() for match in re.finditer(r"\S+", text)], dtype=np.int32)


def _plan(
    texts: list[str], encoder: "PhraseEncoder | Retriever", pool: Pool, batch_tokens: int
) -> Iterator[list[list[int]]]:
    # the batches of each task
    lengths = encoder.count_pieces(texts)
    task: list[list[int]] = []
    num_pieces = 0
    for batch in plan_batches(lengths, batch_tokens=batch_tokens):
        task.append(batch)
        num_pieces += int(lengths[batch].sum())
        if num_pieces >= pool.task_pieces:
            yield task
            task, num_pieces = [], 0
    if task:
        yield task


def plan_batches(lengths: NDArray[np.int64], *, batch_tokens: int) -> Iterator[list[int]]:
    """Put chunks of equal length together, the longest first.

    A chunk is never padded: padding would change the last bits of its vectors. Yields positions of
    the chunks of a batch; every chunk is in one. *Shape:* ``(num_chunks,)`` WordPieces of each
    """
    order = np.argsort(-lengths, kind="stable")
    for group in np.split(order, np.flatnonzero(np.diff(lengths[order])) + 1):
        if len(group):
            size = max(1, batch_tokens // max(1, int(lengths[group[0]])))
            for first in range(0, len(group), size):
                yield group[first : first + size].tolist()


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
