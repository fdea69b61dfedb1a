"""The joint distribution against brute-force marginalisation, and choices against it."""

import math

import numpy as np
import pytest
import torch

from cog.decoding.candidates import Phrases, find_phrases
from cog.decoding.distribution import NextChoice, next_choice
from cog.decoding.sampling import Chooser, choose_nucleus
from cog.errors import GenerationError
from cog.records import Decoding
from tests.decoding.synthetic import make_chunks
from tests.devices import DEVICES

VOCAB_SIZE = 11


def distribution_of(
    seed: int, device: str = "cpu"
) -> tuple[NextChoice, Phrases, torch.Tensor, list[str]]:
    chunks, words = make_chunks(seed)
    phrases = find_phrases(chunks, min_words=2, max_words=4, device=torch.device(device))
    random = torch.Generator().manual_seed(seed)
    logits = torch.randn(VOCAB_SIZE, generator=random) * 3
    logits[4] = -torch.inf
    scores = torch.randn(len(phrases), generator=random) * 3
    logits, scores = logits.to(device), scores.to(device)
    return next_choice(logits, scores, phrases), phrases, logits, words


def brute_force(
    distribution: NextChoice, phrases: Phrases, logits: torch.Tensor, words: list[str]
) -> dict[object, float]:
    # one softmax over everything, then summed by text in a plain loop
    weights: dict[object, float] = {
        token: math.exp(logit) for token, logit in enumerate(logits.tolist())
    }
    for phrase, score in enumerate(distribution.scores.tolist()):
        first, last = phrases.span(phrase)
        text = "".join(words[first : last + 1])
        weights[text] = weights.get(text, 0.0) + math.exp(score)
    total = sum(weights.values())
    return {key: weight / total for key, weight in weights.items()}


def key_of(choice: int, phrases: Phrases, words: list[str]) -> object:
    if choice < VOCAB_SIZE:
        return choice
    first, last = phrases.span(phrases.occurrences(choice - VOCAB_SIZE)[0])
    return "".join(words[first : last + 1])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("seed", range(10))
def test_probabilities_equal_brute_force_marginalisation(seed: int, device: str) -> None:
    distribution, phrases, logits, words = distribution_of(seed, device)
    again, *_ = distribution_of(seed, device)
    assert torch.equal(distribution.weights, again.weights)  # to the last bit, on any device
    expected = brute_force(distribution, phrases, logits, words)
    assert len(distribution.weights) == len(expected)
    for choice in range(len(distribution.weights)):
        assert distribution.probability(choice) == pytest.approx(
            expected[key_of(choice, phrases, words)], rel=1e-5
        )
    assert distribution.probability(4) == 0.0


@pytest.mark.parametrize("seed", range(10))
def test_greedy_takes_the_best_sum_not_the_best_occurrence(seed: int) -> None:
    distribution, phrases, logits, words = distribution_of(seed)
    expected = brute_force(distribution, phrases, logits, words)
    choice = Chooser(decoding("greedy"), "").choose(distribution)
    assert key_of(choice, phrases, words) == max(expected, key=lambda key: expected[key])


def test_sum_over_occurrences_decides_against_a_better_single_phrase() -> None:
    chunks, _ = make_chunks(0, lengths=(2, 2, 2))
    chunks.word_hashes[:] = [1, 2, 1, 2, 3, 4]
    chunks.word_flags[:] = 6
    phrases = find_phrases(chunks, min_words=2, max_words=2)
    scores = torch.tensor([1.2 if phrases.span(i)[0] == 4 else 1.0 for i in range(len(phrases))])
    distribution = next_choice(torch.full((1,), -5.0), scores, phrases)
    choice = Chooser(decoding("greedy"), "").choose(distribution)
    assert {phrases.span(i)[0] for i in phrases.occurrences(choice - 1)} == {0, 2}


def decoding(method: str, *, top_p: float = 0.95, seed: int = 0) -> Decoding:
    return Decoding(method, top_p, seed, 8, 4, 0.0)


def take_choices(chooser: Chooser, distribution: NextChoice, count: int) -> list[int]:
    chosen = []
    for _ in range(count):
        chosen.append(chooser.choose(distribution))
        assert chooser.choose(distribution) == chosen[-1]  # nothing is written yet
        chooser.settle()
    return chosen


def plain_nucleus(distribution: NextChoice, top_p: float, *, size: int | None = None) -> list[int]:
    weights = distribution.weights[:size].double()
    order = sorted(range(len(weights)), key=lambda i: (-float(weights[i]), i))
    nucleus, mass = [], 0.0
    for choice in order:
        if mass >= top_p * float(weights.sum()):
            break
        nucleus.append(choice)
        mass += float(weights[choice])
    return nucleus


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("top_p", [0.05, 0.5, 0.9, 0.95, 1.0])
def test_draws_reach_exactly_the_nucleus(seed: int, top_p: float) -> None:
    distribution, *_ = distribution_of(seed)
    grid = np.linspace(0, 1, 3_000, endpoint=False)
    reached = {choose_nucleus(distribution, top_p=top_p, draw=float(draw)) for draw in grid}
    expected = plain_nucleus(distribution, top_p)
    certain = {choice for choice in expected if distribution.probability(choice) > 2e-3}
    assert certain <= reached <= set(expected)


@pytest.mark.parametrize("top_p", [0.3, 0.6, 0.9])
@pytest.mark.parametrize("seed", range(8))
def test_tokens_are_of_the_nucleus_of_tokens(seed: int, top_p: float) -> None:
    distribution, *_ = distribution_of(seed)
    size = distribution.num_tokens
    own = plain_nucleus(distribution, top_p, size=size)
    expected = own + [c for c in plain_nucleus(distribution, top_p) if c >= size]
    reached = {
        choose_nucleus(distribution, top_p=top_p, draw=float(draw), is_token_nucleus=True)
        for draw in np.linspace(0, 1, 3_000, endpoint=False)
    }
    certain = {choice for choice in expected if distribution.probability(choice) > 2e-3}
    assert certain <= reached <= set(expected)


def test_nucleus_of_equal_weights_keeps_the_first() -> None:
    chunks, _ = make_chunks(0, lengths=())
    phrases = find_phrases(chunks, min_words=2, max_words=2)
    distribution = next_choice(torch.zeros(10), torch.zeros(0), phrases)
    reached = {
        choose_nucleus(distribution, top_p=0.45, draw=float(d)) for d in np.linspace(0, 0.999, 500)
    }
    assert reached == {0, 1, 2, 3, 4}


@pytest.mark.parametrize("top_p", [0.8, 1.0])
def test_sampled_frequencies_follow_the_distribution(top_p: float) -> None:
    distribution, *_ = distribution_of(1)
    nucleus = plain_nucleus(distribution, top_p)
    mass = sum(distribution.probability(choice) for choice in nucleus)
    chooser = Chooser(decoding("nucleus", top_p=top_p, seed=7), "prefix")
    num_draws = 6_000
    counts = np.bincount(
        take_choices(chooser, distribution, num_draws), minlength=len(distribution.weights)
    )
    expected = np.zeros(len(counts))
    for choice in nucleus:
        expected[choice] = num_draws * distribution.probability(choice) / mass
    assert counts[expected == 0].sum() == 0
    common = expected > 5
    statistic = ((counts - expected)[common] ** 2 / expected[common]).sum()
    degrees = int(common.sum()) - 1
    assert statistic < degrees + 5 * math.sqrt(
        2 * degrees
    )  # five standard deviations of chi-squared


def test_stream_depends_on_seed_and_prefix_alone() -> None:
    distribution, *_ = distribution_of(2)

    def draws(seed: int, prefix: str) -> list[int]:
        chooser = Chooser(decoding("nucleus", seed=seed), prefix)
        return take_choices(chooser, distribution, 30)

    assert draws(0, "a") == draws(0, "a")
    assert draws(0, "a") != draws(1, "a")
    assert draws(0, "a") != draws(0, "b")


@pytest.mark.parametrize("method", ["greedy", "nucleus"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_has_no_probabilities_is_refused(method: str, value: float) -> None:
    phrases = find_phrases(make_chunks(0, lengths=())[0], min_words=2, max_words=2)
    distribution = next_choice(torch.full((3,), value), torch.zeros(0), phrases)
    with pytest.raises(GenerationError, match="must have probabilities"):
        Chooser(decoding(method), "").choose(distribution)
