"""Segmentation of a corpus against a plain loop over strings, and what the published code did."""

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cog.model.words import flag_words
from cog.progress import SilentProgress
from cog.training.segmentation.grams import walk_words
from cog.training.segmentation.matches import CorpusWords, collect_texts, find_in_corpus
from tests.index.hash_model import PieceSplitter
from tests.training.segmentation.making import VOCABULARY, random_words, spans_of


def collect(texts: Sequence[str]) -> CorpusWords:
    return collect_texts(texts, splitter=PieceSplitter(), progress=SilentProgress())


def segment(texts: Sequence[str], *, max_words: int = 8) -> list[list[str]]:
    """The phrases of each text that are copied, from left to right."""
    lengths = find_in_corpus(collect(texts), min_words=2, max_words=max_words)
    words = [word for text in texts for word in split(text)]
    owners = [number for number, text in enumerate(texts) for _ in split(text)]
    phrases: list[list[str]] = [[] for _ in texts]
    for first in walk_words(lengths).tolist():
        phrases[owners[first]].append("".join(words[first : first + int(lengths[first])]))
    return phrases


def split(text: str) -> list[str]:
    bounds = PieceSplitter().split(text).word_chars.tolist()
    return [text[a:b] for a, b in itertools.pairwise(bounds)]


def find_plainly(texts: Sequence[str], *, max_words: int) -> list[list[int]]:
    """The longest phrase at each word of each text that another holds, by trying them all."""
    words = [split(text) for text in texts]
    flags = [
        flag_words(text, np.cumsum([0, *map(len, each)]).astype(np.int32))
        for text, each in zip(texts, words, strict=True)
    ]
    found = []
    for number, own in enumerate(words):
        lengths = []
        for first in range(len(own)):
            sizes = [
                size
                for size in range(2, max_words + 1)
                if spans_of(flags[number], first, size, len(own))
                for other in range(len(texts))
                if other != number
                for start in range(len(words[other]) - size + 1)
                if words[other][start : start + size] == own[first : first + size]
                and spans_of(flags[other], start, size, len(words[other]))
            ]
            lengths.append(max(sizes, default=0))
        found.append(lengths)
    return found


WORD = st.sampled_from([*VOCABULARY, " <unk>", "\n"])
TEXTS = st.lists(st.lists(WORD, max_size=20).map("".join), min_size=1, max_size=6)


def test_phrases_may_have_more_words_than_a_byte_counts() -> None:
    text = " ".join(f"word{number}" for number in range(300))
    lengths = find_in_corpus(collect([text, text]), min_words=2, max_words=280)
    assert lengths.max() == 280


@settings(max_examples=150, deadline=None, derandomize=True)
@given(texts=TEXTS, max_words=st.integers(2, 8))
def test_matches_equal_a_plain_loop(texts: list[str], max_words: int) -> None:
    words = collect(texts)
    lengths = find_in_corpus(words, min_words=2, max_words=max_words)
    plain = find_plainly(texts, max_words=max_words)
    assert lengths.tolist() == [length for row in plain for length in row]


# ---------------------------------------------- what the published code does, and should not


def test_where_two_words_are_not_found_only_one_is_left() -> None:
    # the published code leaves both, and so loses the longest match that begins at the second
    found = segment(["x1 the quick brown fox", "see the quick brown fox"])
    assert found[0] == [" the quick brown fox"]


def test_a_match_inside_a_longer_word_is_none() -> None:
    # " he was" and "he was" lie in "she was" as characters
    assert segment(["now he was there", "now she was there"])[0] == [" was there"]
    assert segment(["he was there", "now s he was there"])[0] == [" was there"]


def test_a_phrase_of_the_most_words_has_a_source_that_holds_them_all() -> None:
    shared = "".join(f" w{i}" for i in range(16))
    almost = "b" + "".join(f" w{i}" for i in range(15)) + " no"
    assert segment(["a" + shared + " end", almost, "c" + shared], max_words=16)[0] == [shared]
    assert segment(["a" + shared + " end", almost], max_words=16)[0] == [shared[: -len(" w15")]]


def test_the_last_word_is_searched_like_the_others() -> None:
    assert segment(["foo bar baz qux", "my foo bar baz nope"])[0] == [" bar baz"]
    assert segment(["so foo bar baz qux", "my foo bar baz nope"])[0] == [" foo bar baz"]


def test_work_does_not_grow_with_the_square_of_a_document() -> None:
    # the published code keeps a list that grows at every step; here a level is one sort, and a word
    # is visited once
    random = np.random.default_rng(0)
    text = "".join(random_words(random, num_words=30_000, vocab_size=10))
    words = collect([text, text[:5000]])
    lengths = find_in_corpus(words, min_words=2, max_words=8)
    steps = walk_words(lengths)
    assert len(steps) <= len(lengths) // 2
    assert (np.diff(steps) >= lengths[steps[:-1]]).all()


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_walk_is_the_same_in_blocks_of_any_size(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [
        "".join(random_words(np.random.default_rng(i), num_words=90, vocab_size=6)) for i in (0, 1)
    ]
    lengths = find_in_corpus(collect(texts), min_words=2, max_words=8)
    whole = walk_words(lengths)
    monkeypatch.setattr("cog.training.segmentation.grams.BLOCK_WORDS", size)
    assert walk_words(lengths).tolist() == whole.tolist() != []


def test_every_document_is_searched_not_the_nearest_alone() -> None:
    others = [f"w{i} a{i} b{i} c{i}" for i in range(2000)]
    found = segment(["my a1999 b1999 c1999 and a0 b0 c0", *others])[0]
    assert found == [" a1999 b1999 c1999", " a0 b0 c0"]


def test_a_document_is_never_copied_from_itself() -> None:
    found = segment(["the old mill and the old mill", "and no more"])
    assert found[0] == []


def test_marks_do_not_begin_or_end_a_phrase_but_may_lie_inside_one() -> None:
    found = segment(["of bread, salt and", "no bread, salt, or", "bread. salt", "my bread. salt"])
    assert found[0] == [" bread, salt"]
    assert found[2] == found[3] == []


def test_nothing_to_copy_is_no_error() -> None:
    assert segment(["one two three", "four five six"]) == [[], []]
    assert segment(["only one document, only one document"]) == [[]]
    assert segment(["", "a"]) == [[], []]
