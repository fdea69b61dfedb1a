"""Guesses: what is guessed, and that no text hangs on it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from cog.decoding.draft import Draft
from cog.decoding.generator import CopyGenerator
from cog.decoding.guesses import OWN_WEIGHT, Guesses, estimate_next, guess_tokens
from cog.decoding.request import Request
from cog.decoding.row import Row
from cog.decoding.sampling import Chooser
from cog.model.prefix_encoder import PrefixEncoder
from tests.decoding.checked import CheckedGenerator
from tests.decoding.plain import look
from tests.decoding.settings import SETTINGS, ask

MAX_DEPTH = 10
NOTHING = np.zeros(0, dtype=np.int64)
FEW_COPIES = {"phrase_bias": 0.0, "span_words": 2}  # longer drafts fill short texts


class GuessingGenerator(CheckedGenerator):
    """Guesses what the prefix encoder alone would write, among tokens that it would not."""

    num_guessed = 0

    def __init__(self, generator: CopyGenerator) -> None:
        super().__init__(generator.model, generator.index)
        self.rows: list[Row] = []

    def begin(self, request: Request) -> tuple[Row, dict[str, float]]:
        row, seconds = super().begin(request)
        self.rows.append(row)
        return row, seconds

    def guess(self, row: Row, draft: Draft, *, max_tokens: int) -> Guesses:
        max_depth = row.num_left - len(draft.token_ids) - 1
        ids = [*row.token_ids, *draft.token_ids]
        guesses = Guesses([], [])
        parent = -1
        for depth in range(min(max_tokens // 2, max_depth, MAX_DEPTH)):
            likeliest = int(look(self, ids)[1].argmax())
            others = [(likeliest + 1 + depth) % self.model.prefix_encoder.vocab_size]
            for token_id in (*others, likeliest):
                guesses.token_ids.append(token_id)
                guesses.parents.append(parent)
            parent = len(guesses.token_ids) - 1
            ids.append(likeliest)
        self.num_guessed += len(guesses.token_ids)
        return guesses


@pytest.fixture
def many_cheap_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for guesses on any machine, and in batches."""
    monkeypatch.setattr(PrefixEncoder, "num_cheap_tokens", 200)


@pytest.mark.usefixtures("many_cheap_tokens")
@pytest.mark.parametrize("name", SETTINGS)
def test_what_stands_behind_right_guesses_is_what_a_pass_of_its_own_says(
    generator: CopyGenerator, name: str
) -> None:
    guessing = GuessingGenerator(generator)
    requests = [
        replace(each, decoding=replace(each.decoding, max_new_tokens=6 + 2 * k))
        for k, each in enumerate(
            ask(**SETTINGS[name] | FEW_COPIES)
        )  # texts leave the batch one by one
    ]
    generations = guessing.generate(requests)
    assert [each.num_tokens for each in generations] == [6 + 2 * k for k in range(len(requests))]
    num_steps = sum(each.num_steps for each in generations)
    assert guessing.num_checked == num_steps + guessing.num_refused
    assert guessing.num_guessed > 0


@pytest.mark.usefixtures("many_cheap_tokens")
@pytest.mark.parametrize("name", ["paper-greedy", "all-greedy"])
def test_right_guesses_need_no_pass(generator: CopyGenerator, name: str) -> None:
    settings = SETTINGS[name] | {"top_k_documents": 0, "no_repeat_ngram": 0}
    guessing = GuessingGenerator(generator)
    for generation in guessing.generate(ask(**settings)[:2]):
        # ten likeliest tokens are guessed behind the first of a pass; the last is never read
        assert generation.num_steps == 24
        assert generation.num_passes == 3


@pytest.mark.usefixtures("many_cheap_tokens")
def test_a_choice_takes_one_draw_whether_it_needs_a_pass_or_not(generator: CopyGenerator) -> None:
    guessing = GuessingGenerator(generator)
    requests = ask(max_new_tokens=12, top_k_documents=0)
    generations = guessing.generate(requests)
    for row, request, generation in zip(guessing.rows, requests, generations, strict=True):
        fresh = Chooser(request.decoding, request.prefix)._random
        assert generation.num_steps == 12
        assert fresh.random(13)[-1] == row.chooser._random.random()


def test_guesses_of_the_index_leave_the_texts(generator: CopyGenerator) -> None:
    checked = CheckedGenerator(generator.model, generator.index)
    for name in ("all", "all-greedy", "spans"):
        generations = list(checked.generate_each(ask(**SETTINGS[name]), batch_size=1))
        for each in generations:
            assert 1 <= each.num_passes <= each.num_steps


def plain_estimate(
    sampled: Sequence[Sequence[int]], own: Sequence[int], tail: Sequence[int]
) -> dict[int, float]:
    shares: dict[int, float] = {}
    for n in range(1, len(tail) + 1):
        found = list(sampled[n - 1]) if n <= len(sampled) else []
        for i in range(n, len(own)):
            if list(own[i - n : i]) == list(tail[-n:]):
                found += [own[i]] * OWN_WEIGHT
        if not found:
            break
        counts = Counter(found)
        rest = (3.0 if n == 1 else 1.0) * len(counts)
        shares = {
            token: (rest * shares.get(token, 0.0) + counts[token]) / (len(found) + rest)
            for token in shares.keys() | counts.keys()
        }
    return shares


@pytest.mark.parametrize("seed", range(20))
def test_shares_are_those_of_a_plain_loop(seed: int) -> None:
    random = np.random.default_rng(seed)
    own = random.integers(0, 4, random.integers(0, 40))
    tail = random.integers(0, 4, random.integers(1, 5)).tolist()
    sampled = [
        random.integers(0, 5, random.integers(1, 9)).tolist()
        for _ in range(random.integers(0, len(tail) + 1))
    ]
    found = estimate_next(sampled, own, tail)
    assert found == pytest.approx(plain_estimate(sampled, own.tolist(), tail))
    assert sum(found.values()) <= 1.0 + 1e-9


def test_the_likeliest_paths_are_guessed() -> None:
    follows = {1: [2] * 18 + [3] * 10, 2: [4] * 30, 3: [5, 6], 4: [7]}

    def sample(tail: Sequence[int]) -> list[list[int]]:
        return [follows[tail[-1]]] if tail[-1] in follows else []

    guesses = guess_tokens(sample, [9, 1], max_tokens=4, max_depth=3)
    assert guesses == Guesses([2, 4, 3, 7], [-1, 0, -1, 1])
    assert guess_tokens(sample, [9, 1], max_tokens=9, max_depth=1) == Guesses([2, 3], [-1, -1])
    assert guess_tokens(sample, [9], max_tokens=4, max_depth=3) == Guesses([], [])
    assert [guesses.find(*each) for each in ((-1, 3), (0, 4), (1, 4), (-1, 4))] == [2, 1, -1, -1]


def test_a_text_that_repeats_itself_is_followed() -> None:
    guesses = guess_tokens(lambda _: [], [5, 6, 7, 8, 5, 6], max_tokens=2, max_depth=2)
    assert guesses == Guesses([7, 8], [-1, 0])
    assert estimate_next([], NOTHING, [5]) == {}


@torch.inference_mode()
def test_a_machine_without_cheap_tokens_guesses_nothing(
    generator: CopyGenerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PrefixEncoder, "num_cheap_tokens", 1)
    guessing = GuessingGenerator(generator)
    (generation,) = guessing.generate(ask(**SETTINGS["all"])[:1])
    assert guessing.num_guessed == 0
    assert generation.num_passes in (generation.num_steps, generation.num_steps - 1)
