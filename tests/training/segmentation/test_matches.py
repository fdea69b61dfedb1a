"""Segmentation of a corpus against a plain loop over strings, and what the published code did."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cog.model.words import flag_words
from cog.progress import SilentProgress
from cog.training.segmentation.corpus_words import CorpusWords, WordCollector, collect_texts
from cog.training.segmentation.matches import Matches, find_in_corpus
from cog.training.segmentation.retrieved import find_in_neighbours
from cog.training.segmentation.walk import check_phrases, iter_segment_blocks, walk_words
from tests.index.hash_model import PieceSplitter
from tests.training.segmentation.making import VOCABULARY, random_words, spans_of

Segments = list[tuple[str, str | None]]  # text, and the id of the document it is copied from


def collect(texts: Sequence[str]) -> CorpusWords:
    documents = ((str(number), text) for number, text in enumerate(texts))
    return collect_texts(documents, splitter=PieceSplitter(), progress=SilentProgress())


def read_segments(words: CorpusWords, matches: Matches, texts: Sequence[str]) -> list[Segments]:
    """Cut each text as the blocks say; the slices are read from the texts themselves."""
    found: list[Segments] = []
    for block in iter_segment_blocks(words, matches):
        for row, document_id in enumerate(block.document_ids):
            text, segments, end = texts[int(document_id)], [], 0
            for phrase in range(block.offsets[row], block.offsets[row + 1]):
                start, stop, _, source_start, source_stop = block.places[phrase].tolist()
                source = block.source_document_ids[phrase].as_py()
                assert source != document_id
                assert texts[int(source)][source_start:source_stop] == text[start:stop]
                segments += [(text[end:start], None)] * (start > end)
                segments.append((text[start:stop], source))
                end = stop
            segments += [(text[end:], None)] * (end < len(text))
            found.append(segments)
    return found


def segment(texts: Sequence[str], *, max_words: int = 8, min_words: int = 2) -> list[Segments]:
    words = collect(texts)
    matches = find_in_corpus(words, min_words=min_words, max_words=max_words)
    return read_segments(words, matches, texts)


def phrases(segments: Segments) -> list[str]:
    return [text for text, source in segments if source is not None]


def split(text: str) -> list[str]:
    bounds = PieceSplitter().split(text).word_chars.tolist()
    return [text[a:b] for a, b in zip(bounds, bounds[1:], strict=False)]


def find_plainly(
    runs: Sequence[tuple[int, str]], *, near: Sequence[Sequence[int]], max_words: int
) -> list[list[int]]:
    """The longest phrase at each word of each run that a run near it holds, by trying them all."""
    words = [split(text) for _, text in runs]
    flags = [
        flag_words(text, np.cumsum([0, *map(len, each)]).astype(np.int32))
        for (_, text), each in zip(runs, words, strict=True)
    ]
    found = []
    for run, own in enumerate(words):
        lengths = []
        for first in range(len(own)):
            sizes = [
                size
                for size in range(2, max_words + 1)
                if spans_of(flags[run], first, size, len(own))
                for other in near[run]
                if runs[other][0] != runs[run][0]
                for start in range(len(words[other]) - size + 1)
                if words[other][start : start + size] == own[first : first + size]
                and spans_of(flags[other], start, size, len(words[other]))
            ]
            lengths.append(max(sizes, default=0))
        found.append(lengths)
    return found


WORD = st.sampled_from([*VOCABULARY, " <unk>", "\n"])
TEXTS = st.lists(st.lists(WORD, max_size=20).map("".join), min_size=1, max_size=6)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(texts=TEXTS, max_words=st.integers(2, 8))
def test_matches_equal_a_plain_loop(texts: list[str], max_words: int) -> None:
    words = collect(texts)
    matches = find_in_corpus(words, min_words=2, max_words=max_words)
    runs = list(enumerate(texts))
    plain = find_plainly(runs, near=[range(len(texts))] * len(texts), max_words=max_words)
    assert matches.lengths.tolist() == [length for lengths in plain for length in lengths]
    check_phrases(words, matches, np.flatnonzero(matches.lengths))  # at every word, walked or not


@pytest.mark.parametrize("seed", range(20))
def test_matches_in_near_chunks_equal_a_plain_loop(seed: int) -> None:
    random = np.random.default_rng(seed)
    documents = np.sort(random.integers(0, 4, size=9)).tolist()
    texts = [
        "".join(
            random_words(random, num_words=int(random.integers(0, 20)), vocab_size=5 + seed % 6)
        )
        for _ in documents
    ]
    near = [
        np.array([i for i in random.permutation(9)[:5].tolist() if documents[i] != document])
        for document in documents
    ]
    collector = WordCollector()
    for document in range(4):
        own = [text for text, number in zip(texts, documents, strict=True) if number == document]
        joined = "".join(own)
        collector.add_document(str(document), joined)
        start = 0
        for text in own:
            bounds = np.cumsum([start, *map(len, split(text))]).astype(np.int32)
            collector.add_run(joined, bounds=bounds, flags=None)
            start += len(text)
    words = collector.finish()
    matches = find_in_neighbours(
        words, [rows.astype(np.int64) for rows in near], min_words=2, max_words=6
    )
    runs = list(zip(documents, texts, strict=True))
    plain = find_plainly(runs, near=[rows.tolist() for rows in near], max_words=6)
    assert matches.lengths.tolist() == [length for lengths in plain for length in lengths]
    firsts = np.flatnonzero(matches.lengths)
    check_phrases(words, matches, firsts)
    run_of = np.repeat(np.arange(9), np.diff(words.run_offsets))
    for first in firsts.tolist():
        length, source = int(matches.lengths[first]), int(matches.sources[first])
        phrase = words.numbers[first : first + length].tolist()
        holders = [
            run
            for run in near[run_of[first]].tolist()
            for start in range(words.run_offsets[run], words.run_offsets[run + 1] - length + 1)
            if words.numbers[start : start + length].tolist() == phrase
        ]
        assert run_of[source] == holders[0], "the nearest chunk is the source"


# ---------------------------------------------- what the published code does, and should not


def test_where_two_words_are_not_found_only_one_is_left() -> None:
    # the published code leaves both, and so loses the longest match that begins at the second
    segments = segment(["x1 the quick brown fox", "see the quick brown fox"])
    assert segments[0] == [("x1", None), (" the quick brown fox", "1")]


def test_a_match_inside_a_longer_word_is_none() -> None:
    # " he was" and "he was" lie in "she was" as characters
    assert phrases(segment(["now he was there", "now she was there"])[0]) == [" was there"]
    assert phrases(segment(["he was there", "now s he was there"])[0]) == [" was there"]


def test_a_phrase_of_the_most_words_points_to_a_source_that_holds_them_all() -> None:
    shared = "".join(f" w{i}" for i in range(16))
    texts = [
        "a" + shared + " end",
        "b" + "".join(f" w{i}" for i in range(15)) + " no",
        "c" + shared,
    ]
    (first,) = [text for text in segment(texts, max_words=16)[0] if text[1] is not None]
    assert first == (shared, "2")


def test_the_last_word_is_searched_like_the_others() -> None:
    assert phrases(segment(["foo bar baz qux", "my foo bar baz nope"])[0]) == [" bar baz"]
    assert phrases(segment(["so foo bar baz qux", "my foo bar baz nope"])[0]) == [" foo bar baz"]


def test_work_does_not_grow_with_the_square_of_a_document() -> None:
    # the published code keeps a list that grows at every step; here a level is one sort, and a word
    # is visited once
    random = np.random.default_rng(0)
    text = "".join(random_words(random, num_words=30_000, vocab_size=10))
    words = collect([text, text[:5000]])
    matches = find_in_corpus(words, min_words=2, max_words=8)
    steps = walk_words(matches.lengths)
    assert len(steps) <= len(matches.lengths) // 2
    assert (np.diff(steps) >= matches.lengths[steps[:-1]]).all()


def test_every_document_is_searched_not_the_nearest_alone() -> None:
    others = [f"w{i} a{i} b{i} c{i}" for i in range(2000)]
    found = segment(["my a1999 b1999 c1999 and a0 b0 c0", *others])[0]
    assert [segment for segment in found if segment[1]] == [
        (" a1999 b1999 c1999", "2000"),
        (" a0 b0 c0", "1"),
    ]


def test_a_document_is_never_copied_from_itself() -> None:
    found = segment(["the old mill and the old mill", "and no more"])
    assert phrases(found[0]) == []


def test_marks_do_not_begin_or_end_a_phrase_but_may_lie_inside_one() -> None:
    found = segment(["of bread, salt and", "no bread, salt, or", "bread. salt", "my bread. salt"])
    assert phrases(found[0]) == [" bread, salt"]
    assert phrases(found[2]) == phrases(found[3]) == []


def test_nothing_to_copy_is_no_error() -> None:
    assert [phrases(each) for each in segment(["one two three", "four five six"])] == [[], []]
    assert segment(["only one document, only one document"])[0][0][1] is None
    assert segment(["", "a"]) == [[], [("a", None)]]


def test_a_wrong_source_is_noticed() -> None:
    texts = ["my old mill stands", "an old mill burns", "my new mill stands"]
    words = collect(texts)
    matches = find_in_corpus(words, min_words=2, max_words=8)
    firsts = walk_words(matches.lengths)
    check_phrases(words, matches, firsts)
    for wrong in (firsts, firsts * 0 + 8, firsts * 0 + words.num_words - 1):
        bad = Matches(matches.lengths, matches.sources.copy())
        bad.sources[firsts] = wrong
        with pytest.raises(AssertionError):
            check_phrases(words, bad, firsts)
