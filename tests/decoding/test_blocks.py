"""What may not be copied any more: words, passages of twins, and names of far documents."""

from dataclasses import replace

import numpy as np
import pytest

from cog.decoding.blocks import TWIN_WORDS, Blocks
from cog.decoding.pool import Pool
from tests.decoding.synthetic import PAPER, lay_out, make_chunks, make_pool

ONCE = replace(PAPER, copy_once=True)
GUARDED = replace(PAPER, guard_names=True, relevance_level=0.5)


def plain_mask(pool: Pool, copies: list[tuple[int, int]], words: list[str]) -> list[bool]:
    """Words of the characters that were copied, and passages that were copied elsewhere."""
    mask = [False] * pool.num_words
    chunk_of = np.searchsorted(pool.chunks.word_offsets, np.arange(pool.num_words), "right") - 1
    documents = pool.chunks.document_ordinals[chunk_of].tolist()
    chars = pool.chunks.word_chars.tolist()
    for first, end in copies:
        for word in range(pool.num_words):
            is_same = documents[word] == documents[first]
            if is_same and chars[first][0] <= chars[word][0] < chars[end - 1][1]:
                mask[word] = True
        for begin in range(first, end - TWIN_WORDS + 1):
            passage = words[begin : begin + TWIN_WORDS]
            for start in range(pool.num_words - TWIN_WORDS + 1):
                if words[start : start + TWIN_WORDS] == passage:
                    mask[start : start + TWIN_WORDS] = [True] * TWIN_WORDS
    return mask


@pytest.mark.parametrize("seed", range(12))
def test_copied_words_and_their_twins_are_blocked(seed: int) -> None:
    random = np.random.default_rng(seed)
    _, words = make_chunks(seed, lengths=(30, 30, 30, 30))
    words[60:75] = words[10:25]  # a passage that stands twice
    words[100:110] = words[14:24]
    pool = make_pool(lay_out([[words[:30], words[30:60]], [words[60:90], words[90:]]]), ONCE)
    blocks = Blocks(ONCE)
    blocks.enter(pool)
    assert blocks.mask is None
    copies: list[tuple[int, int]] = []
    for _ in range(4):
        first = int(random.integers(0, 55))
        copies.append((first, min(60, first + int(random.integers(1, 12)))))
        blocks.add_copy(pool, *copies[-1])
        assert blocks.mask is not None
        assert blocks.mask.tolist() == plain_mask(pool, copies, words)
    again = Blocks(ONCE, copied=blocks.copied, passages=blocks.passages)
    again.enter(pool)
    assert again.mask is not None
    assert again.mask.tolist() == blocks.mask.tolist()


def test_what_was_copied_is_blocked_in_another_pool() -> None:
    _, words = make_chunks(1, lengths=(20,))
    first = make_pool(lay_out([[words]]), ONCE)
    blocks = Blocks(ONCE)
    blocks.enter(first)
    blocks.add_copy(first, 5, 12)
    # the same document behind a chunk that came first, and a twin of it
    chunks = lay_out([[words[:10], words[10:]], [["bread"]], [words[4:14]]])
    chunks.document_ordinals[:] = [0, 0, 7, 8]
    second = make_pool(chunks, ONCE)
    blocks.enter(second)
    assert blocks.mask is not None
    assert np.flatnonzero(blocks.mask).tolist() == [*range(5, 12), *range(22, 29)]


def test_a_passage_that_was_copied_in_two_steps_is_one() -> None:
    _, words = make_chunks(3, lengths=(20,))
    pool = make_pool(lay_out([[words], [words[2:12]]]), ONCE)
    blocks = Blocks(ONCE)
    blocks.enter(pool)
    for first in range(3, 11, 2):
        blocks.add_copy(pool, first, first + 2)
    assert blocks.mask is not None
    # words 3 to 10, and where they stand in the twin
    assert np.flatnonzero(blocks.mask).tolist() == [*range(3, 11), *range(21, 29)]


def test_words_may_be_copied_twice_where_that_is_allowed() -> None:
    pool = make_pool(make_chunks(0)[0])
    blocks = Blocks(PAPER)
    blocks.enter(pool)
    blocks.add_copy(pool, 0, 9)
    blocks.add_text(pool, " Ada")
    assert blocks.mask is None


FAR = [[" the", " Ada", " mill", ".", " the", " mist"], ["bread", " Ada"]]


def blocked(blocks: Blocks) -> list[int]:
    return [] if blocks.mask is None else np.flatnonzero(blocks.mask).tolist()


def test_names_of_far_documents_wait_until_the_text_has_them() -> None:
    pool = make_pool(lay_out([FAR]), GUARDED, similarities={0: 0.2, 1: 0.3})
    blocks = Blocks(GUARDED, text="The")
    blocks.enter(pool)
    assert blocked(blocks) == [0, 1, 2, 3, 4, 7]  # the first sentence, a beginning, a name
    blocks.add_text(pool, " Ad")
    blocks.add_text(pool, "am")
    assert blocked(blocks) == [0, 1, 2, 3, 4, 7]
    blocks.add_text(pool, " A")
    blocks.add_text(pool, "da")
    assert blocked(blocks) == [0, 1, 2, 3, 4]
    blocks.enter(make_pool(lay_out([FAR]), GUARDED, similarities={0: 0.2, 1: 0.3}))
    assert blocked(blocks) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("prefix", ["Ada", "of Ada.", "(Ada)"])
def test_names_of_the_prefix_are_known(prefix: str) -> None:
    pool = make_pool(lay_out([FAR]), GUARDED, similarities={0: 0.2, 1: 0.3})
    blocks = Blocks(GUARDED, text=prefix)
    blocks.enter(pool)
    assert blocked(blocks) == [0, 1, 2, 3, 4]


def test_a_near_document_brings_names_to_all() -> None:
    near = [[" mill", " Ada"]]
    pool = make_pool(lay_out([FAR, near]), GUARDED, similarities={0: 0.2, 1: 0.3, 2: 0.5})
    blocks = Blocks(GUARDED)
    blocks.enter(pool)
    assert blocked(blocks) == [0, 1, 2, 3, 4]
    alone = make_pool(lay_out([FAR]), GUARDED, similarities={0: 0.2, 1: 0.5})
    blocks.enter(alone)  # a document is as near as its best chunk
    assert blocked(blocks) == []


def test_a_first_sentence_ends_with_its_run() -> None:
    texts = [FAR, [["bread", " the"]], [[" the", " mist", ".", " the"]]]
    chunks = lay_out(texts)
    chunks.word_chars[-4:] += 9  # of a document whose beginning is not here
    pool = make_pool(chunks, GUARDED, similarities=dict.fromkeys(range(4), 0.0))
    blocks = Blocks(GUARDED, text="Ada")
    blocks.enter(pool)
    assert blocked(blocks) == [0, 1, 2, 3, 4, 8, 9, 13]


def test_no_far_document_brings_its_first_sentence() -> None:
    pool = make_pool(
        lay_out([FAR, [["bread", " the"]]]), GUARDED, similarities=dict.fromkeys(range(3), 0.0)
    )
    blocks = Blocks(GUARDED, text="Ada")
    blocks.enter(pool)
    assert blocked(blocks) == [0, 1, 2, 3, 4, 8, 9]


def test_both_rules_hold_together() -> None:
    both = replace(GUARDED, copy_once=True)
    pool = make_pool(lay_out([FAR]), both, similarities={0: 0.2, 1: 0.3})
    blocks = Blocks(both)
    blocks.enter(pool)
    blocks.add_copy(pool, 5, 6)
    assert blocked(blocks) == [0, 1, 2, 3, 4, 5, 7]
    blocks.add_text(pool, " Ada")
    assert blocked(blocks) == [0, 1, 2, 3, 4, 5]
