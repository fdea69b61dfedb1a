"""Drafts: what is proposed, and what is kept of them wherever they are cut."""

from dataclasses import replace

import numpy as np
import pytest

from cog.decoding.draft import Draft, Kept, draft_copy, find_draft_end, keep_draft
from cog.decoding.pool import Pool
from tests.decoding.synthetic import lay_out, make_pool

# tokens:      2        1       1      2        1        1        3        1
FIRST = [" mill", " the", " (a", " mist", " Ada", " b)", " river", ","]
SECOND = [" the", " mist", ".", " mill"]
OTHER = [" Ada", " the"]


@pytest.fixture(scope="module")
def pool() -> Pool:
    """Words 0 to 11 are a run of two chunks; 12 and 13 are of another document."""
    return make_pool(lay_out([[FIRST, SECOND], [OTHER]]))


@pytest.mark.parametrize(
    ("word", "max_words", "end"),
    [
        (1, 3, 4),
        (1, 0, 1),
        (4, 20, 10),  # into the next chunk, up to the barred word
        (7, 2, 9),
        (10, 5, 10),  # begins with it
        (11, 5, 12),  # the run ends
        (12, 5, 12),  # of another document: the run had ended before
        (13, 5, 14),
        (14, 5, 14),  # there is no such word
    ],
)
def test_drafts_end_with_the_run_or_before_a_barred_word(
    pool: Pool, word: int, max_words: int, end: int
) -> None:
    assert find_draft_end(pool, word, max_words=max_words, blocked=None, is_near=False) == end


def test_drafts_of_near_documents_go_on_over_the_end_of_a_sentence(pool: Pool) -> None:
    assert find_draft_end(pool, 8, max_words=20, blocked=None, is_near=True) == 12
    assert find_draft_end(pool, 8, max_words=3, blocked=None, is_near=True) == 11
    blocked = np.zeros(pool.num_words, dtype=bool)
    blocked[11] = True
    assert find_draft_end(pool, 8, max_words=20, blocked=blocked, is_near=True) == 11


def test_drafts_end_before_a_blocked_word(pool: Pool) -> None:
    blocked = np.zeros(pool.num_words, dtype=bool)
    blocked[[3, 12]] = True
    for word, end in ((1, 3), (3, 3), (4, 10), (12, 12), (13, 14)):
        assert find_draft_end(pool, word, max_words=20, blocked=blocked, is_near=False) == end


def test_chunks_that_do_not_touch_are_no_run() -> None:
    apart = make_pool(lay_out([[FIRST, SECOND]], gap=1))
    assert find_draft_end(apart, 6, max_words=20, blocked=None, is_near=False) == 8
    assert find_draft_end(apart, 8, max_words=20, blocked=None, is_near=False) == 8


@pytest.mark.parametrize("max_tokens", range(1, 14))
@pytest.mark.parametrize(("first", "end", "num_chosen_words"), [(0, 5, 5), (0, 8, 2), (3, 10, 0)])
def test_drafts_are_cut_at_the_room_there_is(
    pool: Pool, first: int, end: int, num_chosen_words: int, max_tokens: int
) -> None:
    draft = draft_copy(pool, (first, end), num_chosen_words=num_chosen_words, max_tokens=max_tokens)
    by_word = [pool.chunks.token_ids[slice(*pool.chunks.word_tokens[i])] for i in range(first, end)]
    ids = np.concatenate(by_word).tolist()
    assert draft.token_ids == ids[:max_tokens]
    num_chosen = sum(len(each) for each in by_word[:num_chosen_words])
    assert draft.num_chosen == min(num_chosen, max_tokens, len(ids))
    wanted = [n for n in np.cumsum([len(each) for each in by_word]).tolist() if n <= max_tokens]
    assert draft.word_ends == wanted
    assert draft.goes_on == (num_chosen_words == 0)
    assert draft.is_copy


def test_a_draft_of_no_word_is_empty(pool: Pool) -> None:
    assert not draft_copy(pool, (14, 14), num_chosen_words=0, max_tokens=5).token_ids


def plain_keep(
    words: list[str], num_chosen: int, num_accepted: int, *, min_words: int, min_bits: float
) -> Kept:
    """What is kept of a draft, read off its words."""
    sizes = {" mill": 2, " mist": 2, " river": 3}
    ends = {" mill", " the", " (a", " mist", " river", " Ada"}  # may end a phrase
    bits = {" the": 1.0, ",": 1.0, " river": 6.0, " mill": 9.0}
    best = Kept(min(num_accepted, max(1, sum(sizes.get(w, 1) for w in words[:num_chosen]))), 0)
    for count in range(1, len(words) + 1):
        num_tokens = sum(sizes.get(word, 1) for word in words[:count])
        if num_tokens > num_accepted or words[count - 1] not in ends:
            continue
        is_worth = count >= min_words and sum(bits.get(w, 4.0) for w in words[:count]) >= min_bits
        if num_chosen == 0 or is_worth:
            best = Kept(num_tokens, count)
    return best


@pytest.mark.parametrize("min_bits", [0.0, 9.5, 14.0, 20.0])
@pytest.mark.parametrize(
    ("first", "end", "num_chosen"), [(0, 2, 2), (0, 8, 2), (0, 10, 3), (1, 8, 4), (2, 8, 0)]
)
def test_what_is_kept_at_every_cut(
    pool: Pool, first: int, end: int, num_chosen: int, min_bits: float
) -> None:
    words = [*FIRST, *SECOND][first:end]
    for min_words in (1, 2, 3):
        draft = draft_copy(pool, (first, end), num_chosen_words=num_chosen, max_tokens=100)
        for num_accepted in range(1, len(draft.token_ids) + 1):
            kept = keep_draft(
                draft, num_accepted, pool=pool, min_words=min_words, min_bits=min_bits
            )
            assert kept == plain_keep(
                words, num_chosen, num_accepted, min_words=min_words, min_bits=min_bits
            )
            assert 1 <= kept.num_tokens <= num_accepted
            strict = replace(draft, least_ratio=0.1)  # as a copy or not at all
            whole_or_none = keep_draft(
                strict, num_accepted, pool=pool, min_words=min_words, min_bits=min_bits
            )
            assert whole_or_none == (kept if kept.num_words or not num_chosen else Kept(0, 0))


def test_a_cut_inside_the_first_word_leaves_tokens_of_the_vocabulary(pool: Pool) -> None:
    draft = draft_copy(pool, (0, 5), num_chosen_words=2, max_tokens=1)
    assert keep_draft(draft, 1, pool=pool, min_words=2, min_bits=0.0) == Kept(1, 0)


def test_a_token_of_the_vocabulary_is_no_copy(pool: Pool) -> None:
    draft = Draft([3], 1, 0.5, 0.5)
    assert not draft.is_copy
    assert keep_draft(draft, 1, pool=pool, min_words=1, min_bits=0.0) == Kept(1, 0)
