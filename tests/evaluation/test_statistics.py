"""Statistics against published examples, exact values and simulation."""

import numpy as np
import pytest

from cog.evaluation.statistics import (
    Interval,
    bootstrap_interval,
    cohen_kappa,
    compare_intervals,
    compare_paired,
    compare_unpaired,
    krippendorff_alpha,
    sign_test,
    win_rate,
)


def test_interval_has_the_width_of_the_standard_error() -> None:
    values = np.random.default_rng(0).normal(10.0, 2.0, size=400)
    found = bootstrap_interval(values)
    error = values.std() / 20
    assert found.mean == pytest.approx(values.mean())
    assert found.high - found.low == pytest.approx(2 * 1.96 * error, rel=0.05)


def test_interval_covers_the_truth_in_nineteen_of_twenty_cases() -> None:
    random = np.random.default_rng(1)
    found = [
        bootstrap_interval(random.exponential(size=80), seed=i, num_resamples=500)
        for i in range(200)
    ]
    covered = sum(each.low <= 1.0 <= each.high for each in found)
    assert 174 <= covered <= 199


def test_metric_of_column_means_is_resampled_as_a_whole() -> None:
    # perplexity-like: exp of a ratio of two columns
    random = np.random.default_rng(2)
    rows = np.stack([random.uniform(100, 300, 50), random.integers(50, 130, 50)], axis=1)
    found = bootstrap_interval(rows, combine=lambda means: np.exp(means[:, 0] / means[:, 1]))
    assert found.mean == pytest.approx(np.exp(rows[:, 0].sum() / rows[:, 1].sum()))
    assert found.low < found.mean < found.high


def test_paired_sees_what_unpaired_does_not() -> None:
    random = np.random.default_rng(3)
    prompts = random.normal(0, 5, size=60)
    first, second = prompts + 0.5 + random.normal(0, 0.3, size=60), prompts
    paired, unpaired = compare_paired(first, second), compare_unpaired(first, second)
    assert paired.mean == pytest.approx(unpaired.mean)
    assert paired.is_significant
    assert paired.low > 0.0
    assert not unpaired.is_significant
    assert unpaired.win_rate is None
    assert paired.win_rate == pytest.approx((first > second).mean())


def test_p_value_is_uniform_when_there_is_no_difference() -> None:
    random = np.random.default_rng(4)
    p_values = [
        compare_paired(*random.normal(size=(2, 50)), seed=i, num_resamples=400).p_value
        for i in range(200)
    ]
    assert 2 <= sum(p < 0.05 for p in p_values) <= 20
    assert 0.4 < float(np.mean(p_values)) < 0.6


def test_equal_systems_do_not_differ() -> None:
    values = np.random.default_rng(5).normal(size=30)
    found = compare_paired(values, values)
    assert (found.mean, found.p_value, found.win_rate) == (0.0, 1.0, 0.5)


def test_paired_needs_the_same_prompts() -> None:
    with pytest.raises(ValueError, match="same prompts"):
        compare_paired(np.ones(3), np.ones(4))
    with pytest.raises(ValueError, match="at least one text"):
        bootstrap_interval(np.zeros(0))


def test_intervals_are_compared_as_normal_values() -> None:
    # each has a standard error of 1: the difference of 2.77 is 1.96 of its own errors
    half = 1.959963984540054
    apart = half * 2**0.5
    first, second = Interval(apart, apart - half, apart + half), Interval(0, -half, half)
    found = compare_intervals(first, second)
    assert found is not None
    assert found.p_value == pytest.approx(0.05, abs=1e-6)
    assert found.low == pytest.approx(0.0, abs=1e-6)
    assert compare_intervals(first, Interval(0, 0, 0)) is None


def test_ties_count_half() -> None:
    assert win_rate(np.array([2.0, 1.0, 3.0]), np.array([1.0, 1.0, 4.0])) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("better", "worse", "wanted"),
    [(9, 1, 22 / 1024), (1, 9, 22 / 1024), (5, 5, 1.0), (0, 0, 1.0), (6, 0, 2 / 64)],
)
def test_sign_test_is_the_binomial(better: int, worse: int, wanted: float) -> None:
    assert sign_test(better, worse) == pytest.approx(wanted)


def test_sign_test_equals_scipy_on_the_paper_human_evaluation() -> None:
    from scipy.stats import binomtest

    assert sign_test(48, 28) == pytest.approx(binomtest(48, 76).pvalue)
    assert sign_test(4800, 4600) == pytest.approx(binomtest(4800, 9400).pvalue)


def test_kappa_of_two_readers_of_grant_proposals() -> None:
    # the standard example: 20 yes/yes, 5 yes/no, 10 no/yes, 15 no/no
    first = ["yes"] * 25 + ["no"] * 25
    second = ["yes"] * 20 + ["no"] * 5 + ["yes"] * 10 + ["no"] * 15
    assert cohen_kappa(first, second) == pytest.approx(0.4)
    assert cohen_kappa(["a", "a"], ["a", "a"]) == 1.0
    with pytest.raises(ValueError, match="same cases"):
        cohen_kappa(["a"], [])


def test_alpha_of_krippendorff_own_example() -> None:
    # "Computing Krippendorff's Alpha-Reliability" (2011), table C with four observers: 0.743
    rows = {
        "A": "1 2 3 3 2 1 4 1 2 . . .",
        "B": "1 2 3 3 2 2 4 1 2 5 . 3",
        "C": ". 3 3 3 2 3 4 2 2 5 1 .",
        "D": "1 2 3 3 2 4 4 1 2 5 1 .",
    }
    answers = {name: line.split() for name, line in rows.items()}
    cases = [
        {name: values[i] for name, values in answers.items() if values[i] != "."} for i in range(12)
    ]
    assert krippendorff_alpha(cases) == pytest.approx(0.743, abs=5e-4)


def test_alpha_without_two_judgements_is_unknown() -> None:
    assert krippendorff_alpha([{"A": 1}, {"B": 2}]) is None
    assert krippendorff_alpha([{"A": 1, "B": 1}]) is None
    assert krippendorff_alpha([{"A": 1, "B": 1}, {"A": 2, "B": 2}]) == pytest.approx(1.0)
