"""Contexts: the tokens of chunks go in; where the last tokens of a text stand in them comes out.

A block of documents is kept as its tokens, and as its positions in the order of what stands before
them, so that a lookup is a few binary searches (a suffix array read backwards, as in infini-gram,
Liu et al. 2024). A break, which is no token, stands before every document, and where words were
left out: what is looked for never reaches across one.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cog.index.records import Places
from cog.index.search.filters import Admits
from cog.index.tables.digest import get_binary_buffers

MAX_CONTEXT = 16  # tokens before a place by which places are sorted
SMALL_RANGE = 4096  # ranks that are compared at once
SAMPLED_BLOCKS = 4  # in which it is looked up what often follows
BLOCK_TOKENS = 1 << 23  # of a block; sorting so many takes about 0.6 GB
CONTEXTS = "contexts/"  # how files of contexts begin
COLUMNS = ("document_ordinal", "word_chars", "token_ids")  # of the words table
BREAK = -1  # before it is stored in the block's dtype
MAX_UINT16 = int(np.iinfo(np.uint16).max)


@dataclass(frozen=True, slots=True)
class ContextBlock:
    """Some documents that follow each other."""

    # (num_positions,) uint16 where the token ids are small enough, else int32: tokens of their
    # chunks with breaks between; `MAX_CONTEXT` breaks begin it
    tokens: NDArray[np.uint16] | NDArray[np.int32]
    # (num_tokens,) positions of tokens, sorted by the tokens before them, the nearest
    # first, and then by position
    order: NDArray[np.uint32]
    # (num_chunks,) position of the first token of each chunk
    chunk_starts: NDArray[np.uint32]

    def find(
        self, tail: Sequence[int], *, min_tokens: int, max_places: int, admits: Admits | None
    ) -> tuple[int, NDArray[np.uint32]]:
        """Find the places before which the most of the last tokens stand, as :func:`find_places`.

        Gives how many of the tokens, and the positions in ascending order; 0 and none if fewer than
        ``min_tokens``.
        """
        wanted = list(tail)[::-1]  # the nearest first
        no_token = int(self.tokens[0])
        wanted = wanted[: wanted.index(no_token)] if no_token in wanted else wanted
        rank, longest = self._get_nearest(wanted) if wanted else (0, 0)
        for num_tokens in range(longest, min_tokens - 1, -1):
            first, last = self._get_range(wanted[:num_tokens], rank)
            positions = self._take_first(self.order[first:last], max_places, admits)
            if len(positions):
                return num_tokens, positions
        return 0, self.order[:0]

    def sample_followers(self, tail: Sequence[int], *, max_sampled: int) -> list[list[int]]:
        """Sample tokens that follow, as :func:`sample_followers` does.

        The places are spread evenly over all, in the order of what stands before them.
        """
        low, high = 0, len(self.order)
        found: list[list[int]] = []
        for depth, wanted in enumerate(reversed(tail), start=1):
            low, high = self._narrow(low, high, depth, wanted)
            if low == high:
                break
            step = -(-(high - low) // max_sampled)
            found.append(self.tokens[self.order[low:high:step]].tolist())
        return found

    def _narrow(self, low: int, high: int, depth: int, wanted: int) -> tuple[int, int]:
        # of ranks before which the same tokens stand, those before which one more stands
        if wanted == int(self.tokens[0]):  # a break
            return low, low
        if high - low <= SMALL_RANGE:
            before = self.tokens[self.order[low:high].astype(np.int64) - depth]
            first, last = np.searchsorted(before, [wanted, wanted + 1]).tolist()
            return low + first, low + last

        def get(rank: int) -> int:
            return int(self.tokens[int(self.order[rank]) - depth])

        first = bisect_left(range(high), wanted, lo=low, key=get)
        return first, bisect_right(range(high), wanted, lo=first, key=get)

    def get_chunks(self, positions: NDArray[np.uint32]) -> NDArray[np.int64]:
        """Numbers of the block's chunks in which tokens stand. *Shape:* ``(num_places,)``."""
        return np.searchsorted(self.chunk_starts, positions, side="right") - 1

    def _get_before(self, rank: int, num_tokens: int) -> list[int]:
        # what stands before the position of a rank, the nearest first
        position = int(self.order[rank])
        before: list[int] = self.tokens[position - num_tokens : position].tolist()
        return before[::-1]

    def _get_nearest(self, wanted: list[int]) -> tuple[int, int]:
        # What is most alike in a sorted list is next to where it would stand itself: the rank of
        # such a place, and how many tokens are equal there.
        num_tokens = len(wanted)
        ranks = range(len(self.order))
        rank = bisect_left(ranks, wanted, key=lambda each: self._get_before(each, num_tokens))
        near = [each for each in (rank, rank - 1) if each in ranks]
        equal = [_count_equal(wanted, self._get_before(each, num_tokens)) for each in near]
        return near[int(np.argmax(equal))], max(equal)

    def _get_range(self, wanted: list[int], rank: int) -> tuple[int, int]:
        # ranks of the places before which the tokens stand, around one of them: mostly a few, so
        # that steps which double find the ends sooner than halving the whole would
        def get(each: int) -> list[int]:
            return self._get_before(each, len(wanted))

        low = high = 1
        while rank - low >= 0 and get(rank - low) == wanted:
            low *= 2
        while rank + high < len(self.order) and get(rank + high) == wanted:
            high *= 2
        ranks = range(len(self.order))
        first = bisect_left(ranks, wanted, lo=max(0, rank - low), hi=rank, key=get)
        last = bisect_right(ranks, wanted, lo=rank, hi=min(len(ranks), rank + high), key=get)
        return first, last

    def _take_first(
        self, positions: NDArray[np.uint32], max_places: int, admits: Admits | None
    ) -> NDArray[np.uint32]:
        # the first in the index that are allowed; most often so are nearly all
        size = max_places
        while True:
            is_all = size >= len(positions)
            part = positions if is_all else np.partition(positions, size)[:size]
            kept = part if admits is None else part[admits(self.get_chunks(part))]
            if is_all or len(kept) >= max_places:
                return np.sort(kept)[:max_places]
            size *= 8


def find_places(
    blocks: Iterable[ContextBlock],
    tail: NDArray[np.int32],
    *,
    min_tokens: int,
    max_places: int,
    admits: Admits | None = None,
) -> Places:
    """Find where the most of the last tokens of a text stand in an index, with a token behind them.

    At most ``MAX_CONTEXT`` tokens are looked at. What stands there is of one document, without a
    gap. Where nothing of the longest is admitted, the next shorter counts. At least ``min_tokens``
    of them, 1 or more, must stand before a place; of the places, the first ``max_places`` of the
    index are taken. ``admits`` says which chunks may be found.
    """
    wanted = tail[-MAX_CONTEXT:].tolist()
    longest, found = 0, np.zeros(0, dtype=np.int64)
    num_places = first_chunk = 0
    for block in blocks:
        num_tokens, positions = block.find(
            wanted,
            min_tokens=max(1, min_tokens, longest),  # a shorter match counts in no further block
            max_places=max_places,
            admits=_shift(admits, first_chunk),
        )
        if num_tokens > longest:
            longest, found, num_places = num_tokens, found[:0], 0
        positions = positions[: max_places - num_places]
        num_places += len(positions)
        chunk_ids = _get_chunks_between(block, positions, num_tokens) + first_chunk
        found = np.concatenate([found, chunk_ids])
        first_chunk += len(block.chunk_starts)
    if admits is not None and len(found):
        found = found[admits(found)]
    return Places(longest, found)


def _shift(admits: Admits | None, first_chunk: int) -> Admits | None:
    # what is said of a block's chunks, by what is said of all
    return None if admits is None else lambda numbers: admits(numbers + first_chunk)


def sample_followers(
    blocks: Sequence[ContextBlock], tail: Sequence[int], *, max_sampled: int
) -> list[list[int]]:
    """Sample the tokens that follow the last one of a text, the last two, and so on.

    What it gives says what is likely, whether it may be copied from there or not. For each number
    of last tokens, ``max_sampled`` places of each block are looked at; only the first
    ``SAMPLED_BLOCKS`` blocks are, so that it takes as long in an index of any size. Gives token ids
    by number of last tokens, one less; as many lists as are not empty.
    """
    found: list[list[int]] = []
    for block in blocks[:SAMPLED_BLOCKS]:
        for depth, tokens in enumerate(block.sample_followers(tail, max_sampled=max_sampled)):
            if depth == len(found):
                found.append([])
            found[depth] += tokens
    return found


def iter_blocks(
    rows: Iterable[pa.RecordBatch], *, block_tokens: int = BLOCK_TOKENS
) -> Iterator[ContextBlock]:
    """Sort the positions of the tokens of an index, a block of documents after the other.

    Reads ``COLUMNS`` of the words table in canonical order. A block ends with the document in which
    it gets ``block_tokens`` tokens; memory is bounded by one of them.
    """
    run = _Run()
    document, char_end = -1, -1
    for batch in rows:
        for ordinal, bounds, tokens in _iter_chunks(batch):
            if ordinal != document and run.num_tokens >= block_tokens:
                yield run.finish()
                run = _Run()
            is_joined = ordinal == document and bounds[0] == char_end
            run.add(tokens, is_joined=is_joined)
            document, char_end = ordinal, int(bounds[-1])
    if run.num_tokens:
        yield run.finish()


def save_blocks(folder: Path, blocks: Iterable[ContextBlock]) -> None:
    """Write the blocks of an index."""
    (folder / CONTEXTS).mkdir()
    for number, block in enumerate(blocks):
        for name, path in _list_paths(folder, number).items():
            np.save(path, getattr(block, name))


def load_blocks(folder: Path) -> list[ContextBlock]:
    """Map the blocks of an index into memory; a bad file is a ``ValueError`` or an ``OSError``."""
    blocks: list[ContextBlock] = []
    while (paths := _list_paths(folder, len(blocks)))["tokens"].exists():
        arrays = {name: np.load(path, mmap_mode="r") for name, path in paths.items()}
        # slices of a memory map are slow to make, those of an array over it are not
        blocks.append(ContextBlock(**{name: np.asarray(each) for name, each in arrays.items()}))
    return blocks


@dataclass(slots=True)
class _Run:
    # a block that grows chunk by chunk
    parts: list[NDArray[np.int32]] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    num_tokens: int = 0
    num_positions: int = 0

    def add(self, tokens: NDArray[np.int32], *, is_joined: bool) -> None:
        if not is_joined or not self.parts:
            num_breaks = 1 if self.parts else MAX_CONTEXT
            self.parts.append(np.full(num_breaks, BREAK, dtype=np.int32))
            self.num_positions += num_breaks
        self.starts.append(self.num_positions)
        self.parts.append(tokens)
        self.num_tokens += len(tokens)
        self.num_positions += len(tokens)

    def finish(self) -> ContextBlock:
        tokens: NDArray[np.int32] = np.concatenate(self.parts)
        is_small = int(tokens.max()) < MAX_UINT16  # which a break becomes
        stored = tokens.astype(np.uint16) if is_small else tokens
        return ContextBlock(stored, _sort(stored), np.array(self.starts, dtype=np.uint32))


def _sort(tokens: NDArray[np.uint16] | NDArray[np.int32]) -> NDArray[np.uint32]:
    # prefix doubling, backwards: ranks by the n tokens before each position give those by 2 n
    values = tokens.astype(np.int64) - int(tokens.min())
    ranks, width = np.roll(values, 1), 1
    while 2 * width < MAX_CONTEXT:
        ranks = np.unique(_pair(ranks, width), return_inverse=True)[1]
        width *= 2
    positions = np.flatnonzero(tokens != tokens[0])
    keys = _pair(ranks, width)[positions]
    return positions[np.argsort(keys, kind="stable")].astype(np.uint32)


def _pair(ranks: NDArray[np.int64], width: int) -> NDArray[np.int64]:
    # the first positions get what stands at the end, but no context of a token reaches so far
    return (ranks << 32) | np.roll(ranks, width)


def _iter_chunks(
    batch: pa.RecordBatch,
) -> Iterator[tuple[int, NDArray[np.int32], NDArray[np.int32]]]:
    # document, bounds of words in characters, and tokens
    ordinals = batch.column("document_ordinal").to_pylist()
    columns = []
    for name in ("word_chars", "token_ids"):
        offsets, values = get_binary_buffers(batch.column(name))
        numbers = values.view(np.int32)
        columns.append(np.split(numbers, offsets[1:-1] // numbers.itemsize))
    yield from zip(ordinals, *columns, strict=True)


def _get_chunks_between(
    block: ContextBlock, positions: NDArray[np.uint32], num_tokens: int
) -> NDArray[np.int64]:
    # what is found may begin in an earlier chunk than its last token: all between are read
    lasts = block.get_chunks(positions).tolist()
    firsts = block.get_chunks(positions - np.uint32(num_tokens)).tolist()
    chunks = {each for a, b in zip(firsts, lasts, strict=True) for each in range(a, b + 1)}
    return np.array(sorted(chunks), dtype=np.int64)


def _count_equal(one: list[int], other: list[int]) -> int:
    differing = (i for i, (a, b) in enumerate(zip(one, other, strict=True)) if a != b)
    return next(differing, len(one))


def _list_paths(folder: Path, number: int) -> dict[str, Path]:
    names = [each.name for each in fields(ContextBlock)]
    return {name: folder / CONTEXTS / f"{number:05d}-{name}.npy" for name in names}
