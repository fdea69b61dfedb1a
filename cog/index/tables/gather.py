"""Gathering: rows of the words table go in, flat arrays come out, without a loop over rows."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cog.index.records import GatheredChunks, VectorFormat
from cog.index.tables.digest import get_binary_buffers
from cog.index.tables.quantise import get_layout
from cog.model.vector_code import VectorCodes


@dataclass(frozen=True, slots=True)
class WordArrays:
    """Room for the words of some chunks; several parts may be filled at once."""

    gathered: GatheredChunks  # the arrays, in the order the chunks were asked for
    token_offsets: NDArray[np.int64]  # (num_chunks + 1,) where the tokens of each chunk begin

    @classmethod
    def allocate(
        cls,
        chunk_ids: NDArray[np.int64],
        takes: Iterable[tuple[pa.Table, NDArray[np.int64]]],
        *,
        vectors: VectorFormat,
    ) -> "WordArrays":
        """Make room for chunks, *shape* ``(num_chunks,)``.

        ``takes`` are rows of the words table, and the position of each among the chunks.
        """
        layout = get_layout(vectors)
        num_words, num_tokens = np.zeros((2, len(chunk_ids)), dtype=np.int64)
        for rows, slots in takes:
            num_words[slots] = _get_sizes(rows, "word_flags", np.uint8)
            num_tokens[slots] = _get_sizes(rows, "token_ids", np.int32)
        word_offsets = _cumulate(num_words)
        token_offsets = _cumulate(num_tokens)
        total = int(word_offsets[-1])
        gathered = GatheredChunks(
            chunk_ids=chunk_ids,
            document_ordinals=np.empty(len(chunk_ids), dtype=np.int64),
            word_offsets=word_offsets,
            start_vectors=np.empty((total, layout.width), dtype=layout.kind),
            end_vectors=np.empty((total, layout.width), dtype=layout.kind),
            start_scales=np.ones(total, dtype=np.float32),
            end_scales=np.ones(total, dtype=np.float32),
            word_flags=np.empty(total, dtype=np.uint8),
            word_hashes=np.empty(total, dtype=np.uint64),
            word_chars=np.empty((total, 2), dtype=np.int32),
            word_tokens=np.empty((total, 2), dtype=np.int64),
            token_ids=np.empty(int(token_offsets[-1]), dtype=np.int32),
        )
        return cls(gathered, token_offsets)

    def fill(
        self, rows: pa.Table, slots: NDArray[np.int64], *, first_chunk: int, first_document: int
    ) -> None:
        """Put rows of the words table of a part where they belong.

        A slot is the position of a row among the chunks asked for. ``first_chunk`` is the id of the
        part's first chunk, ``first_document`` the position of its first document. Raises
        ``ValueError`` if the rows are of other chunks, or not of the stated number of words.
        """
        out = self.gathered
        chunk_ids, ordinals = (
            rows.column(name).to_numpy() for name in ("chunk_id", "document_ordinal")
        )
        if not np.array_equal(chunk_ids + first_chunk, out.chunk_ids[slots]):
            raise ValueError("rows of other chunks")
        out.document_ordinals[slots] = ordinals + first_document
        words = _get_targets(out.word_offsets, slots)
        names = ["start_vectors", "end_vectors", "word_flags", "word_hashes"]
        if out.start_vectors.dtype != np.uint8:  # bits have no scales
            names += ["start_scales", "end_scales"]
        for name in names:
            _fill(rows, name, getattr(out, name), words)
        _fill(rows, "token_ids", out.token_ids, _get_targets(self.token_offsets, slots))
        num_words = np.diff(out.word_offsets)[slots]
        out.word_chars[words] = _read_ranges(rows, "word_chars", num_words)
        tokens = _read_ranges(rows, "word_tokens", num_words).astype(np.int64)
        out.word_tokens[words] = tokens + np.repeat(self.token_offsets[slots], num_words)[:, None]


def unpack_chunks(chunks: GatheredChunks, codes: VectorCodes) -> GatheredChunks:
    """Turn the bits of gathered vectors into the integers of their codes."""
    return replace(
        chunks,
        start_vectors=codes.start.unpack(chunks.start_vectors.view(np.uint8)),
        end_vectors=codes.end.unpack(chunks.end_vectors.view(np.uint8)),
        codes=codes,
    )


def join_chunks(parts: Sequence[GatheredChunks]) -> GatheredChunks:
    """Put gathered chunks, of one storage format, one behind another."""
    values = {
        field.name: np.concatenate([getattr(part, field.name) for part in parts])
        for field in fields(GatheredChunks)
        if field.name not in ("word_offsets", "word_tokens", "codes")
    }
    num_tokens = np.cumsum([0, *(len(part.token_ids) for part in parts)])
    tokens = [part.word_tokens + n for part, n in zip(parts, num_tokens, strict=False)]
    offsets = _cumulate(np.concatenate([np.diff(part.word_offsets) for part in parts]))
    return GatheredChunks(
        **values, word_offsets=offsets, word_tokens=np.concatenate(tokens), codes=parts[0].codes
    )


def sort_chunks(parts: Sequence[GatheredChunks]) -> GatheredChunks:
    """Put gathered chunks of several parts, of one storage format, in the order of their ids.

    What lies together in a part, in that order already, is copied at once.
    """
    owners = np.repeat(np.arange(len(parts)), [len(part.chunk_ids) for part in parts])
    places = np.concatenate([np.arange(len(part.chunk_ids)) for part in parts])
    order = np.argsort(np.concatenate([part.chunk_ids for part in parts]), kind="stable")
    owners, places = owners[order], places[order]
    is_cut = (np.diff(owners) != 0) | (np.diff(places) != 1)
    cuts = [0, *(np.flatnonzero(is_cut) + 1).tolist(), len(order)]
    return join_chunks(
        [_slice_chunks(parts[owners[a]], places[a], places[b - 1] + 1) for a, b in pairwise(cuts)]
    )


def _slice_chunks(chunks: GatheredChunks, first: int, end: int) -> GatheredChunks:
    # chunks that lie side by side
    begin_word, end_word = chunks.word_offsets[first], chunks.word_offsets[end]
    tokens = chunks.word_tokens[begin_word:end_word]
    begin_token, end_token = (tokens[0, 0], tokens[-1, 1]) if len(tokens) else (0, 0)
    by_chunk = ("chunk_ids", "document_ordinals")
    values = {
        field.name: getattr(chunks, field.name)[
            slice(first, end) if field.name in by_chunk else slice(begin_word, end_word)
        ]
        for field in fields(GatheredChunks)
        if field.name not in ("word_offsets", "word_tokens", "token_ids", "codes")
    }
    return GatheredChunks(
        **values,
        word_offsets=chunks.word_offsets[first : end + 1] - begin_word,
        word_tokens=tokens - begin_token,
        token_ids=chunks.token_ids[begin_token:end_token],
        codes=chunks.codes,
    )


def _cumulate(counts: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    offsets = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def _get_targets(offsets: NDArray[np.int64], slots: NDArray[np.int64]) -> NDArray[np.int64]:
    # where the items of the rows go, row after row
    counts = np.diff(offsets)[slots]
    source = _cumulate(counts)
    targets: NDArray[np.int64] = np.repeat(offsets[slots] - source[:-1], counts)
    targets += np.arange(source[-1])
    return targets


def _get_bytes(rows: pa.Table, name: str) -> NDArray[np.uint8]:
    column = rows.column(name)
    if column.num_chunks != 1:
        column = pa.chunked_array([column.combine_chunks()])
    _, values = get_binary_buffers(column.chunk(0))
    return values


def _get_sizes(rows: pa.Table, name: str, kind: type[np.generic]) -> NDArray[np.int64]:
    # number of items of each row's byte string
    lengths: NDArray[np.int64] = pc.binary_length(rows.column(name)).to_numpy()
    return lengths // np.dtype(kind).itemsize


def _fill(rows: pa.Table, name: str, target: np.ndarray, positions: NDArray[np.int64]) -> None:
    values = _get_bytes(rows, name)
    wanted = len(positions) * target.dtype.itemsize * int(np.prod(target.shape[1:], dtype=int))
    if values.nbytes != wanted:
        raise ValueError(f"{values.nbytes} bytes of {name}, {wanted} expected")
    target[positions] = values.view(target.dtype).reshape(len(positions), *target.shape[1:])


def _read_ranges(rows: pa.Table, name: str, num_words: NDArray[np.int64]) -> NDArray[np.int32]:
    # num_words + 1 bounds a row become num_words half-open ranges
    bounds = _get_bytes(rows, name).view(np.int32)
    if len(bounds) != num_words.sum() + len(num_words):
        raise ValueError(f"{len(bounds)} bounds of {name}")
    is_start = np.ones(len(bounds), dtype=bool)
    is_start[np.cumsum(num_words + 1) - 1] = False
    starts = np.flatnonzero(is_start)
    return np.stack([bounds[starts], bounds[starts + 1]], axis=1)
