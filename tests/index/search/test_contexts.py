"""Contexts: lookups against a plain loop over random token streams, and in built indexes."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from cog.errors import IndexMismatchError
from cog.index.read.reader import PhraseIndex, open_index
from cog.index.records import Places
from cog.index.search import contexts
from cog.index.search.contexts import (
    MAX_CONTEXT,
    find_places,
    iter_blocks,
    load_blocks,
    save_blocks,
)
from cog.paths import CorpusPaths
from cog.records import Document
from tests.index.hash_model import build, write_corpus


@dataclass(frozen=True)
class Row:
    """A chunk: its document, its first character, and its tokens, one a character."""

    document: int
    start: int
    tokens: list[int]


def make_rows(
    generator: np.random.Generator, *, num_chunks: int, vocab_size: int, first_token: int = 0
) -> list[Row]:
    rows, document, end = [], 0, 0
    for _ in range(num_chunks):
        kind = generator.random()
        if kind < 0.3:  # another document
            document, end = document + 1, int(generator.integers(0, 2))
        elif kind < 0.45:  # a gap, in which a word too long was
            end += 5
        size = int(generator.integers(1, 9))  # shorter than a context
        tokens = (first_token + generator.integers(0, vocab_size, size)).tolist()
        rows.append(Row(document, end, tokens))
        end += size
    return rows


def make_batches(rows: list[Row], *, size: int) -> list[pa.RecordBatch]:
    def join(arrays: list[list[int]]) -> pa.Array:
        blobs = [np.array(each, dtype=np.int32).tobytes() for each in arrays]
        return pa.array(blobs, pa.large_binary())

    batches = []
    for i in range(0, len(rows), size):
        part = rows[i : i + size]
        bounds = [list(range(row.start, row.start + len(row.tokens) + 1)) for row in part]
        ordinals = pa.array([row.document for row in part], pa.int64())
        columns = [ordinals, join(bounds), join([row.tokens for row in part])]
        batches.append(pa.RecordBatch.from_arrays(columns, names=list(contexts.COLUMNS)))
    return batches


def find_slowly(
    rows: list[Row],
    tail: list[int],
    *,
    min_tokens: int,
    max_places: int,
    allowed: np.ndarray | None = None,
) -> tuple[int, list[int]]:
    """The same by a loop over all positions."""
    stream: list[tuple[int, int]] = []  # token and chunk; (-1, -1) between documents and at gaps
    before = None
    for number, row in enumerate(rows):
        ends = before is None or (before.document, before.start + len(before.tokens))
        if ends != (row.document, row.start):
            stream.append((-1, -1))
        stream += [(token, number) for token in row.tokens]
        before = row
    best, places = 0, []
    for position, (token, chunk) in enumerate(stream):
        if token == -1 or (allowed is not None and not allowed[chunk]):
            continue
        same = 0
        while same < min(len(tail), MAX_CONTEXT) and position > same:
            if stream[position - same - 1][0] != tail[-same - 1]:
                break
            same += 1
        if same > best:
            best, places = same, []
        if same == best:
            places.append(position)
    if best < min_tokens:
        return 0, []
    chunks = {
        stream[i][1] for p in places[:max_places] for i in range(p - best, p + 1)
    }  # of what was the same, and of what follows
    return best, sorted(each for each in chunks if allowed is None or allowed[each])


def as_pair(places: Places) -> tuple[int, list[int]]:
    return places.num_tokens, places.chunk_ids.tolist()


@pytest.mark.parametrize("first_token", [0, 40_000, 100_000], ids=["small", "uint16", "int32"])
@pytest.mark.parametrize("block_tokens", [1, 60, 1 << 20])
def test_lookup_equals_a_loop_over_all_positions(first_token: int, block_tokens: int) -> None:
    generator = np.random.default_rng(block_tokens + first_token)
    for vocab_size in (1, 2, 4, 12):
        rows = make_rows(generator, num_chunks=60, vocab_size=vocab_size, first_token=first_token)
        batches = make_batches(rows, size=int(generator.integers(1, 30)))
        blocks = list(iter_blocks(batches, block_tokens=block_tokens))
        assert (len(blocks) > 1) == (block_tokens < 100)
        assert blocks[0].tokens.dtype == (np.int32 if first_token > 65_535 else np.uint16)
        assert sum(len(block.chunk_starts) for block in blocks) == len(rows)
        joined = [token for row in rows for token in row.tokens]
        for number in range(60):
            end = int(generator.integers(0, len(joined)))
            tail = joined[max(0, end - int(generator.integers(0, 24))) : end]
            if number % 3 == 0:  # tokens that stand nowhere
                tail = [*tail, 7, 65_535, *tail[-5:]]
            settings = {
                "min_tokens": int(generator.integers(1, 6)),
                "max_places": int(generator.integers(1, 12)),
            }
            allowed = generator.random(len(rows)) < 0.5 if number % 2 else None
            expected = find_slowly(rows, tail, **settings, allowed=allowed)
            admits = None if allowed is None else allowed.__getitem__
            places = find_places(blocks, np.array(tail, dtype=np.int32), **settings, admits=admits)
            assert as_pair(places) == expected
            assert places.chunk_ids.dtype == np.int64


@pytest.mark.parametrize("first_token", [0, 100_000], ids=["uint16", "int32"])
@pytest.mark.parametrize("small_range", [0, 4096], ids=["one by one", "at once"])
def test_followers_are_those_of_a_loop_over_all_positions(
    first_token: int, small_range: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contexts, "SMALL_RANGE", small_range)
    generator = np.random.default_rng(first_token + small_range)
    for vocab_size in (1, 3, 12):
        rows = make_rows(generator, num_chunks=60, vocab_size=vocab_size, first_token=first_token)
        blocks = list(iter_blocks(make_batches(rows, size=7), block_tokens=1 << 20))
        runs: list[list[int]] = []  # tokens of a document without a gap
        for before, row in zip([None, *rows], rows, strict=False):
            goes_on = before and (before.document, before.start + len(before.tokens)) == (
                row.document,
                row.start,
            )
            runs = [*runs[:-1], runs[-1] + row.tokens] if goes_on else [*runs, row.tokens]
        for number in range(30):
            run = runs[int(generator.integers(len(runs)))]
            tail = run[: int(generator.integers(1, 9))]
            tail = [*tail, first_token + vocab_size] if number % 5 == 0 else tail
            wanted = [
                sorted(
                    run[i]
                    for run in runs
                    for i in range(n, len(run))
                    if run[i - n : i] == tail[-n:]
                )
                for n in range(1, len(tail) + 1)
            ]
            wanted = [each for each in wanted if each]
            every = contexts.sample_followers(blocks, tail, max_sampled=1000)
            assert [sorted(each) for each in every] == wanted
            few_each = contexts.sample_followers(blocks, tail, max_sampled=3)
            for few, many in zip(few_each, wanted, strict=True):
                assert min(2, len(many)) <= len(few) <= 3
                assert set(few) <= set(many)


def test_a_context_crosses_chunks_but_neither_documents_nor_gaps() -> None:
    rows = [
        Row(0, 0, [1, 2, 3]),
        Row(0, 3, [4, 5]),  # goes on
        Row(0, 9, [6, 7]),  # behind a gap
        Row(1, 11, [8, 9]),  # where the other would have gone on, but another document
    ]
    blocks = list(iter_blocks(make_batches(rows, size=2)))

    def find(*tail: int) -> tuple[int, list[int]]:
        wanted = np.array(tail, dtype=np.int32)
        return as_pair(find_places(blocks, wanted, min_tokens=1, max_places=9, admits=None))

    assert find(2, 3) == (2, [0, 1])  # 4 follows, in the next chunk
    assert find(1, 2) == (2, [0])
    assert find(3, 4) == (2, [0, 1])
    assert find(9, 4) == (1, [1])
    assert find(4, 5) == (0, [])  # nothing follows
    assert find(6, 7) == (0, [])
    assert find(5, 6) == (1, [2])  # what stands before the gap is not before it
    assert find(7, 8) == (1, [3])
    assert find() == (0, [])


def test_what_is_stored_comes_back(tmp_path: Path) -> None:
    rows = make_rows(np.random.default_rng(0), num_chunks=40, vocab_size=9)
    blocks = list(iter_blocks(make_batches(rows, size=8), block_tokens=50))
    save_blocks(tmp_path, blocks)
    loaded = load_blocks(tmp_path)
    assert len(loaded) == len(blocks) > 1
    for one, other in zip(loaded, blocks, strict=True):
        for name in ("tokens", "order", "chunk_starts"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def read_rows(index: PhraseIndex) -> list[Row]:
    rows = []
    for batch in index.parts[0].iter_rows("words"):
        for row in batch.to_pylist():
            chars = np.frombuffer(row["word_chars"], dtype=np.int32)
            tokens = np.frombuffer(row["token_ids"], dtype=np.int32).tolist()
            rows.append((row["document_ordinal"], chars[0], chars[-1], tokens))
    found, shift = [], 0
    for number, (document, start, _, tokens) in enumerate(rows):
        is_joined = number and rows[number - 1][0] == document and rows[number - 1][2] == start
        shift = found[-1].start + len(found[-1].tokens) if is_joined else shift + 1_000
        found.append(Row(document, shift, tokens))
    return found


def test_an_index_and_its_parts_as_a_union_find_the_same(corpus: CorpusPaths) -> None:
    texts = [  # with words that are longer than a chunk
        f"the river house {i % 5} and the stone " * 9 + "x" * 200 + " and the river house. " * 4
        for i in range(12)
    ]
    documents = [Document(f"d{i}", "", text, "", "MIT", "f") for i, text in enumerate(texts)]
    parts = {"whole": documents, "first": documents[:5], "second": documents[5:]}
    places = {name: CorpusPaths(corpus.root.parent / name) for name in parts}
    for name, each in parts.items():
        write_corpus(places[name], each)
        build(places[name])
    with (
        open_index(places["whole"]) as whole,
        open_index(places["first"], places["second"]) as union,
    ):
        rows = read_rows(whole)
        generator = np.random.default_rng(1)
        for number in range(60):
            row = rows[int(generator.integers(0, len(rows)))].tokens
            tail = row[: int(generator.integers(1, len(row) + 1))]
            excluded = np.flatnonzero(generator.random(whole.num_documents) < 0.7)
            allowed = ~np.isin(whole.chunk_documents(), excluded) if number % 2 else None
            settings = {"min_tokens": 2, "max_places": 5}
            expected = find_slowly(rows, tail, **settings, allowed=allowed)
            wanted = np.array(tail, dtype=np.int32)
            for index in (whole, union):
                rule = index.allow(index.count_licences(), excluded=excluded)
                settings["admits"] = None if allowed is None else rule.admits
                assert as_pair(find_places(index.contexts, wanted, **settings)) == expected


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [cut, empty, Path.unlink])
def test_files_that_cannot_be_read_are_refused(
    index: PhraseIndex, damage: Callable[[Path], object]
) -> None:
    for path in sorted((index.parts[0].folder / "contexts").iterdir()):
        content = path.read_bytes()
        damage(path)
        with pytest.raises(IndexMismatchError, match="cog index build tiny --force"):
            index.contexts  # noqa: B018  # it reads them
        path.write_bytes(content)
