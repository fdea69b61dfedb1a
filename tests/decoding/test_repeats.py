"""Passages that are written once, against a plain search."""

import numpy as np
import pytest

from cog.decoding.repeats import LONGEST_NUMBER, Refusable, Repeats
from cog.model.load import load_splitter
from cog.params import load_params
from cog.paths import ProjectPaths


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("seed", range(8))
def test_refused_tokens_equal_a_plain_search(size: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    begins_word = random.random(4) < 0.7
    repeats, ids = Repeats(size, Refusable(begins_word, np.zeros(4, dtype=bool))), []
    for count in [*random.integers(1, 6, 12).tolist()]:
        ids += random.integers(0, 4, count).tolist()
        repeats.add(ids, count)
        passages = {tuple(ids[i : i + size]) for i in range(len(ids) - size + 1)}
        tail = ids[len(ids) - size + 1 :] if len(ids) >= size - 1 else None
        wanted = [t for t in range(4) if begins_word[t] and tail is not None]
        wanted = [t for t in wanted if (*tail, t) in passages]
        assert sorted(set(repeats.find(ids))) == wanted


def test_without_a_limit_nothing_is_refused() -> None:
    every = np.ones(3, dtype=bool)
    repeats, ids = Repeats(0, Refusable(every, every)), [1] * LONGEST_NUMBER
    repeats.add(ids, len(ids))
    assert repeats.find(ids) == []


def test_a_number_ends() -> None:
    is_digit = np.array([False, True, True, False])
    repeats = Repeats(6, Refusable(np.zeros(4, dtype=bool), is_digit))
    ids = [0, *[1, 2] * (LONGEST_NUMBER // 2)]
    assert repeats.find(ids[:-1]) == []
    assert repeats.find(ids) == repeats.find([*ids, 1]) == [1, 2]
    assert repeats.find([*ids, 3]) == []


def test_numbers_signs_and_the_rest_of_a_word_may_be_said_again(village: ProjectPaths) -> None:
    splitter = load_splitter(village.model(load_params(village.params).model))
    refusable = Refusable.find(splitter)
    begins, spelled = refusable.begins, splitter.token_bytes
    named = {each.decode(errors="replace") for each in np.array(splitter.token_bytes)[begins]}
    assert named
    assert all(each[0] == " " and each[1].isalpha() for each in named)
    assert not begins[[i for i, each in enumerate(spelled) if each == b" "]].any()
    digits = {spelled[i].decode() for i in np.flatnonzero(refusable.is_digit).tolist()}
    assert {"0", "9", ","} <= digits
    assert all(set(each) <= set("0123456789,") for each in digits)
