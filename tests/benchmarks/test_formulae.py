"""Formulae of a collection against a plain loop, and what counts as writing one."""

from collections import Counter

import pytest

from benchmarks.formulae import (
    Formula,
    begins_with_word,
    draw_formulae,
    find_formulae,
    get_interval,
    iter_texts,
    measure_corpus,
)
from cog.model.load import load_splitter
from cog.model.words import BARRED, WordSplitter, flag_words
from cog.params import load_params
from cog.paths import ProjectPaths

ENACTED = "This act is binding in its entirety and directly applicable."
OTHER = "This act is binding in its entirety and nowhere applied."


@pytest.fixture(scope="module")
def splitter(village: ProjectPaths) -> WordSplitter:
    return load_splitter(village.root / "models" / "tiny")


def plain_formulae(
    texts: list[str], splitter: WordSplitter, *, num_words: int, min_places: int, min_share: float
) -> list[Formula]:
    following: dict[str, Counter[str]] = {}
    for text in texts:
        bounds = splitter.split(text).word_chars.tolist()
        flags = flag_words(text, splitter.split(text).word_chars)
        for first in range(len(bounds) - 1 - num_words):
            last = first + num_words
            if any(flag & BARRED for flag in flags[first : last + 1]):
                continue
            sequence = text[bounds[first] : bounds[last]]
            word = text[bounds[last] : bounds[last + 1]]
            following.setdefault(sequence, Counter())[word] += 1
    found = []
    for sequence, words in following.items():
        (word, num_same), *_ = words.most_common()
        if words.total() >= min_places and num_same / words.total() >= min_share:
            found.append(Formula(sequence, word, words.total(), num_same))
    return sorted(found, key=lambda formula: formula.text)


@pytest.mark.parametrize(
    ("num_words", "min_places", "min_share"), [(1, 4, 0.55), (2, 3, 0.6), (3, 2, 1.0)]
)
def test_formulae_equal_a_plain_loop(
    village: ProjectPaths,
    splitter: WordSplitter,
    num_words: int,
    min_places: int,
    min_share: float,
) -> None:
    texts = [*iter_texts(village, "village"), "", "The", "a b\nc. d " * 9, ENACTED, OTHER] * 2
    rules = {"num_words": num_words, "min_places": min_places, "min_share": min_share}
    found = find_formulae(texts, splitter, **rules)
    assert len(found) > 3
    assert found == plain_formulae(texts, splitter, **rules)
    assert found == find_formulae(texts[::-1], splitter, **rules)


def test_formulae_stand_often_and_are_followed_by_one_word(splitter: WordSplitter) -> None:
    def find(num_enacted: int, num_other: int) -> dict[str, str]:
        texts = [ENACTED] * num_enacted + [OTHER] * num_other
        return {each.text: each.next_word for each in find_formulae(texts, splitter)}

    assert find(2, 0) == {}
    assert find(4, 1)[" is binding in its entirety and"] == " directly"
    assert " is binding in its entirety and" not in find(3, 1)
    assert find(3, 1)["This act is binding in its"] == " entirety"
    assert find_formulae([], splitter) == []


def test_a_draw_depends_on_the_seed_alone() -> None:
    formulae = [Formula(str(number), "a", 3, 3) for number in range(50)]
    drawn = draw_formulae(formulae, num=20, seed=0)
    assert len({each.text for each in drawn}) == 20
    assert drawn == draw_formulae(formulae, num=20, seed=0)
    assert drawn != draw_formulae(formulae, num=20, seed=1)
    assert draw_formulae(formulae, num=200, seed=1) == formulae
    assert draw_formulae([], num=200, seed=1) == []


@pytest.mark.parametrize(
    ("text", "word", "is_right"),
    [
        (" Member States", " Member", True),
        (" Members of", " Member", False),
        (" Member", " Member", True),
        (" Member, and", " Member", True),
        ("Member States", " Member", False),
        (" the Member", " Member", False),
        (", and", ",", True),
        ("(b) of", "(", True),
        ("", " Member", False),
    ],
)
def test_a_word_counts_if_it_is_whole(text: str, word: str, is_right: bool) -> None:
    assert begins_with_word(text, word) is is_right


def test_intervals_lie_around_their_share() -> None:
    assert get_interval([True] * 8 + [False] * 2) == pytest.approx([0.4902, 0.9433], abs=1e-4)
    assert get_interval([True] * 40)[1] == pytest.approx(1.0)  # type: ignore[index]
    assert get_interval([]) is None


def test_a_corpus_is_measured_with_both_systems(
    village: ProjectPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.formulae.find_formulae", lambda *_: list(FORMULAE))
    found = measure_corpus(village, load_params(village.params), "village", num=4, seed=0)
    assert (found["num_sequences"], found["num_drawn"]) == (5, 4)
    for system in ("cog", "tokens"):
        low, high = found[f"share_{system}_interval"]
        assert 0.0 <= low <= found[f"share_{system}"] <= high <= 1.0
    difference = found["num_cog_only"] - found["num_tokens_only"]
    assert difference == pytest.approx(4 * (found["share_cog"] - found["share_tokens"]))
    assert (found["decoding"]["method"], found["decoding"]["max_new_tokens"]) == ("greedy", 12)


FORMULAE = [Formula(f" The old mill stands {i}", " on", 3, 3) for i in range(5)]
