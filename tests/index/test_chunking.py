"""Chunking: limits, evened-out tails, long words, blocks, spans and hashes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cog.index.chunking import chunk_document, cut_chunks, hash_words, iter_blocks
from cog.model.words import BARRED
from tests.index.hash_model import Limits, PieceSplitter, make_text


def bounds_of(lengths: list[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)


def test_short_document_is_one_chunk() -> None:
    assert cut_chunks(bounds_of([3, 2]), max_tokens=16, min_tokens=8) == ([(0, 2)], 0)


def test_no_words_are_no_chunks() -> None:
    assert cut_chunks(np.zeros(1, np.int32), max_tokens=16, min_tokens=8) == ([], 0)


def test_short_tail_is_evened_out() -> None:
    spans, _ = cut_chunks(bounds_of([1] * 18), max_tokens=16, min_tokens=8)
    assert spans == [(0, 9), (9, 18)]


def test_long_tail_is_left_alone() -> None:
    spans, _ = cut_chunks(bounds_of([1] * 24), max_tokens=16, min_tokens=8)
    assert spans == [(0, 16), (16, 24)]


def test_word_longer_than_a_chunk_is_left_out_and_not_crossed() -> None:
    spans, skipped = cut_chunks(bounds_of([2, 2, 17, 3, 40]), max_tokens=16, min_tokens=8)
    assert spans == [(0, 2), (3, 4)]
    assert skipped == 2


@settings(deadline=None, max_examples=200)
@given(st.lists(st.integers(1, 20), max_size=80))
def test_chunks_tile_the_words_that_fit(lengths: list[int]) -> None:
    bounds = bounds_of(lengths)
    spans, skipped = cut_chunks(bounds, max_tokens=16, min_tokens=8)
    assert [i for a, b in spans for i in range(a, b)] == [
        i for i, n in enumerate(lengths) if n <= 16
    ]
    assert skipped == sum(n > 16 for n in lengths)
    assert all(bounds[b] - bounds[a] <= 16 for a, b in spans)


@settings(deadline=None)
@given(st.lists(st.just(1), min_size=8, max_size=80))
def test_no_chunk_of_a_long_enough_document_is_short(lengths: list[int]) -> None:
    spans, _ = cut_chunks(bounds_of(lengths), max_tokens=16, min_tokens=8)
    assert all(b - a >= 8 for a, b in spans)


@settings(deadline=None)
@given(st.text(alphabet="ab \n", max_size=60), st.integers(1, 10))
def test_blocks_tile_the_text(text: str, max_chars: int) -> None:
    blocks = list(iter_blocks(text, max_chars=max_chars))
    assert "".join(text[a:b] for a, b in blocks) == text
    assert all(0 < b - a <= max_chars for a, b in blocks)


def test_blocks_prefer_line_feeds_then_spaces() -> None:
    assert list(iter_blocks("ab cd\nef gh", max_chars=7)) == [(0, 6), (6, 11)]
    assert list(iter_blocks("abcd efgh", max_chars=7)) == [(0, 4), (4, 9)]


def test_chunks_of_a_long_document_hold_offsets_of_the_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("cog.index.chunking.MAX_BLOCK_CHARS", 100)
    text = make_text(200, seed=3)
    blocks = list(
        chunk_document(text, document_ordinal=5, splitter=PieceSplitter(), limits=Limits())
    )
    chunks = [chunk for block in blocks for chunk in block.chunks]
    assert len(blocks) > 5
    assert "".join(chunk.text for chunk in chunks) == text
    for chunk in chunks:
        assert text[chunk.word_chars[0] : chunk.word_chars[-1]] == chunk.text
        assert chunk.document_ordinal == 5
        assert chunk.word_tokens[-1] == len(chunk.token_ids) <= 32


def test_word_spans_leave_out_the_leading_space() -> None:
    text = "Über den Fluß. Ja"
    (block,) = chunk_document(text, document_ordinal=0, splitter=PieceSplitter(), limits=Limits())
    (chunk,) = block.chunks
    words = [chunk.text[a:b] for a, b in chunk.word_spans().tolist()]
    assert words == ["Über", "den", "Fluß", ".", "Ja"]
    assert chunk.word_flags[3] & BARRED
    assert not chunk.word_flags[0] & BARRED


def test_word_spans_of_a_lone_space_are_empty() -> None:
    (block,) = chunk_document("a ", document_ordinal=0, splitter=PieceSplitter(), limits=Limits())
    assert block.chunks[0].word_spans().tolist() == [[0, 1], [2, 2]]


def test_equal_words_have_equal_hashes_and_the_space_counts() -> None:
    hashes = hash_words("tea tea tea", np.array([0, 3, 7, 11], np.int32))
    assert hashes[1] == hashes[2] != hashes[0]
    assert hash_words("tea", np.array([0, 3], np.int32))[0] == hashes[0]
    assert hashes.dtype == np.uint64
