"""Statistics: intervals cover, tests hold their level, and documents are what counts."""

from collections.abc import Callable

import numpy as np
import pytest

from cog.evaluation.metrics.mauve import CLUSTERS, MAUVE
from cog.evaluation.metrics.metric import perplexity_of, ratio_of
from cog.evaluation.metrics.repetition import combine_diversity
from cog.evaluation.statistics import (
    Combine,
    Sample,
    compare,
    find_interval,
    hold,
    sign_test,
    sum_by_cluster,
)

NUM_TRIALS = 400
MEAN = ratio_of(0, 1)
PERPLEXITY = perplexity_of(0, 1)


def draw_windows(random: np.random.Generator, num: int) -> tuple[np.ndarray, list[int]]:
    """The document of each window, and a level that all windows of a document share."""
    counts = random.integers(1, 6, size=num)  # windows of each document
    levels = random.normal(0.0, 1.0, size=num)
    owners = np.repeat(np.arange(num), counts)
    return levels[owners], owners.tolist()


def rates(random: np.random.Generator, num: int) -> np.ndarray:
    """Values of windows that are alike in a document."""
    levels, owners = draw_windows(random, num)
    values = 10.0 + 2.0 * levels + random.normal(0, 1, len(levels))
    return sum_by_cluster(np.stack([values, np.ones(len(values))], axis=1), owners)


def likelihoods(random: np.random.Generator, num: int) -> np.ndarray:
    """Log-likelihoods and numbers of tokens of windows that are alike in a document."""
    levels, owners = draw_windows(random, num)
    tokens = random.integers(80, 130, len(levels)).astype(float)
    losses = tokens * (3.0 + 0.3 * levels + random.normal(0, 0.2, len(levels)))
    return sum_by_cluster(np.stack([-losses, tokens], axis=1), owners)


def repetitions(random: np.random.Generator, num: int) -> np.ndarray:
    """Skewed shares of three orders, the later ones smaller."""
    levels, owners = draw_windows(random, num)
    share = 8.0 * random.gamma(3.0, 1 / 3, len(levels)) * np.exp(0.3 * levels)
    rows = [share, 0.4 * share, 0.2 * share, np.ones(len(share)), np.full(len(share), 99.0)]
    return sum_by_cluster(np.stack(rows, axis=1), owners)


def clusters(random: np.random.Generator, num: int, tilt: float) -> np.ndarray:
    """Clusters of references and of texts that lie a little elsewhere, one pair a document."""
    weights = np.stack([np.ones(CLUSTERS), np.linspace(1 - tilt, 1 + tilt, CLUSTERS)])
    pairs = [random.choice(CLUSTERS, num, p=each / each.sum()) for each in weights]
    return MAUVE.sum_rows(np.stack(pairs, axis=1), [str(i) for i in range(num)])


@pytest.mark.parametrize("num_documents", [12, 24, 100])
@pytest.mark.parametrize(
    ("draw", "combine", "is_log"),
    [
        (rates, MEAN, False),
        (likelihoods, PERPLEXITY, True),
        (repetitions, combine_diversity, False),
    ],
)
def test_intervals_cover_the_truth(
    draw: Callable[[np.random.Generator, int], np.ndarray],
    combine: Combine,
    is_log: bool,
    num_documents: int,
) -> None:
    random = np.random.default_rng(7)
    truth = float(combine(draw(random, 200_000).sum(axis=0)[None])[0])
    found = [
        find_interval(draw(random, num_documents), combine, is_log=is_log)
        for _ in range(NUM_TRIALS)
    ]
    covered = sum(each.low <= truth <= each.high for each in found) / NUM_TRIALS
    assert 0.92 <= covered <= 0.98


@pytest.mark.parametrize(
    ("num_texts", "tilt"), [(100, 0.2), pytest.param(400, 0.8, marks=pytest.mark.slow)]
)
def test_intervals_of_mauve_cover_what_so_many_texts_have_on_average(
    num_texts: int, tilt: float
) -> None:
    random = np.random.default_rng(8)
    found = [
        find_interval(clusters(random, num_texts, tilt), MAUVE.combine, find_error=MAUVE.find_error)
        for _ in range(150)
    ]
    truth = np.mean([each.mean for each in found])
    covered = np.mean([each.low <= truth <= each.high for each in found])
    assert 0.92 <= covered <= 0.98


@pytest.mark.parametrize("num_documents", [12, 60])
def test_a_true_difference_is_covered_and_none_is_seldom_found(num_documents: int) -> None:
    random = np.random.default_rng(9)
    covered, found_some = [], []
    for _ in range(NUM_TRIALS):
        first = rates(random, num_documents)
        noise = random.normal(0, 0.5, len(first)) * first[:, 1]
        second = first + np.stack([noise, 0 * noise], axis=1)
        found = compare(Sample(first), Sample(second), MEAN, is_paired=True)
        assert found is not None
        covered.append(found.low <= 0.0 <= found.high)
        found_some.append(found.p_value < 0.05)
    assert 0.92 <= np.mean(covered) <= 0.98
    assert 0.02 <= np.mean(found_some) <= 0.08


def test_windows_of_one_document_do_not_count_as_many() -> None:
    values = np.repeat(np.random.default_rng(0).normal(size=10), 20)
    rows = np.stack([values, np.ones(200)], axis=1)
    by_window = find_interval(rows, MEAN)
    by_document = find_interval(sum_by_cluster(rows, np.repeat(np.arange(10), 20).tolist()), MEAN)
    assert by_document.mean == pytest.approx(by_window.mean)
    ratio = (by_document.high - by_document.low) / (by_window.high - by_window.low)
    assert ratio > 4.0  # the square root of 20, and Student's quantile


def test_paired_sees_what_unpaired_does_not() -> None:
    random = np.random.default_rng(3)
    first = np.stack([random.normal(0, 5, 60), np.ones(60)], axis=1)
    second = first + np.stack([0.5 + random.normal(0, 0.3, 60), np.zeros(60)], axis=1)
    paired, unpaired = (
        compare(Sample(second), Sample(first), MEAN, is_paired=each) for each in (True, False)
    )
    assert paired is not None
    assert unpaired is not None
    assert paired.mean == pytest.approx(unpaired.mean)
    assert paired.low > 0.0
    assert paired.p_value < 0.001 < 0.1 < unpaired.p_value


def test_what_repeats_itself_is_farther_from_real_text_not_better() -> None:
    random = np.random.default_rng(4)

    def sums(loss: float) -> np.ndarray:
        tokens = np.full(40, 100.0)
        return np.stack([-tokens * (loss + random.normal(0, 0.1, 40)), tokens], axis=1)

    reference = sums(3.0)
    repeating, close = Sample(sums(0.7), reference), Sample(sums(3.3), reference)
    found = compare(repeating, close, PERPLEXITY, is_paired=True, is_log=True)
    assert found is not None
    assert found.mean < 0  # its perplexity is the lower one
    assert (found.closer, found.p_value < 0.001) == (1, True)


def test_equal_systems_do_not_differ_and_no_spread_tells_nothing() -> None:
    rows = np.stack([np.random.default_rng(5).normal(size=30), np.ones(30)], axis=1)
    same = compare(Sample(rows), Sample(rows), MEAN, is_paired=True)
    assert same is not None
    assert (same.mean, same.p_value) == (0.0, 1.0)
    level = np.ones((30, 2))
    shifted = level * [2.0, 1.0]
    assert compare(Sample(shifted), Sample(level), MEAN, is_paired=True) is None
    assert compare(Sample(rows[:4]), Sample(rows[:4]), MEAN, is_paired=True) is None
    few = find_interval(rows[:4], MEAN)
    assert few.low == few.mean == few.high


def test_many_comparisons_are_corrected() -> None:
    def of(p_value: float) -> object:
        found = compare(Sample(np.ones((9, 2))), Sample(np.ones((9, 2))), MEAN, is_paired=True)
        assert found is not None
        return type(found)(0.0, 0.0, 0.0, p_value, 0, "")

    assert hold([of(0.02), None, of(0.04)]) == [True, False, True]  # type: ignore[list-item]
    assert hold([of(0.03), of(0.04)]) == [False, False]  # type: ignore[list-item]


@pytest.mark.parametrize(("better", "worse", "p"), [(8, 1, 20 / 512), (0, 0, 1.0), (5, 5, 1.0)])
def test_sign_test_is_exact(better: int, worse: int, p: float) -> None:
    assert sign_test(better, worse) == pytest.approx(p)
