"""Statistics: values by prompt or by grader go in, intervals and p-values come out."""

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import comb, erfc, sqrt

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
Combine = Callable[[Values], Values]

NUM_RESAMPLES = 10_000
LEVEL = 0.95
SIGNIFICANT = 0.05
NORMAL_QUANTILE = 1.959963984540054  # of 0.975: half a 95 % interval is this many standard errors
WEIGHTS_PER_BLOCK = 8_000_000  # resampling weights held at once


@dataclass(frozen=True, slots=True)
class Interval:
    """A value and its 95 % interval.

    :param mean: The value on all texts.
    :param low: Lower end.
    :param high: Upper end.
    """

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Difference:
    """The first system against the second.

    :param mean: Value of the first minus value of the second.
    :param low: Lower end of its 95 % interval.
    :param high: Upper end.
    :param p_value: Two-sided: how often chance alone gives a difference as large.
    :param win_rate: Share of prompts where the first has the higher value, ties counted half; None
        if the two did not continue the same prompts.
    :param method: ``paired bootstrap``, ``bootstrap`` or ``intervals``.
    """

    mean: float
    low: float
    high: float
    p_value: float
    win_rate: float | None
    method: str

    @property
    def is_significant(self) -> bool:
        """Whether chance alone would give so large a difference in less than one case of twenty.

        :returns: True below 0.05.
        """
        return self.p_value < SIGNIFICANT


def bootstrap_interval(
    values: Values,
    *,
    seed: int = 0,
    combine: Combine | None = None,
    num_resamples: int = NUM_RESAMPLES,
) -> Interval:
    """Percentile bootstrap over texts.

    :param values: One value per text, or one row of several. *Shape:* ``(num_texts,)`` or
        ``(num_texts, num_columns)``
    :param seed: Seed of the resampling.
    :param combine: Makes a metric of the columns' means, for several resamples at once:
        ``(num_resamples, num_columns)`` to ``(num_resamples,)``. None takes the first column's
        mean. So a ratio, a product of means or the exponential of a mean keep an interval.
    :param num_resamples: Number of resamples.
    :returns: The metric on all texts and its interval.
    """
    rows = _rows(values)
    means = _resample(rows, seed=seed, num_resamples=num_resamples)
    drawn, whole = _combine(means, combine), _combine(rows.mean(axis=0, keepdims=True), combine)
    low, high = np.quantile(drawn, _tails())
    return Interval(float(whole[0]), float(low), float(high))


def compare_paired(
    first: Values,
    second: Values,
    *,
    seed: int = 0,
    combine: Combine | None = None,
    num_resamples: int = NUM_RESAMPLES,
) -> Difference:
    """Paired bootstrap: both systems are resampled by the same prompts.

    The p-value is the share of resampled differences, moved so that their centre is no difference,
    that are as large as the one seen (Efron and Tibshirani 1993, chapter 16).

    :param first: Values of the first system by prompt, as in :func:`bootstrap_interval`.
    :param second: Values of the second, in the same order of prompts.
    :param seed: Seed of the resampling.
    :param combine: Makes a metric of the columns' means.
    :param num_resamples: Number of resamples.
    :returns: The difference.
    :raises ValueError: If the systems do not have the same prompts.
    """
    rows, others = _rows(first), _rows(second)
    if rows.shape != others.shape:
        raise ValueError("a paired comparison needs the same prompts for both systems")
    drawn = _combine(_resample(rows, seed=seed, num_resamples=num_resamples), combine)
    drawn = drawn - _combine(_resample(others, seed=seed, num_resamples=num_resamples), combine)
    whole = _whole_difference(rows, others, combine)
    return _difference(
        drawn, whole, win_rate=win_rate(_combine(rows, combine), _combine(others, combine))
    )


def compare_unpaired(
    first: Values,
    second: Values,
    *,
    seed: int = 0,
    combine: Combine | None = None,
    num_resamples: int = NUM_RESAMPLES,
) -> Difference:
    """Bootstrap of two systems that continued different prompts.

    :param first: Values of the first system, as in :func:`bootstrap_interval`.
    :param second: Values of the second.
    :param seed: Seed of the resampling.
    :param combine: Makes a metric of the columns' means.
    :param num_resamples: Number of resamples.
    :returns: The difference; it has no win rate.
    """
    rows, others = _rows(first), _rows(second)
    drawn = _combine(_resample(rows, seed=seed, num_resamples=num_resamples), combine)
    drawn = drawn - _combine(_resample(others, seed=seed + 1, num_resamples=num_resamples), combine)
    return _difference(drawn, _whole_difference(rows, others, combine), win_rate=None)


def compare_intervals(first: Interval, second: Interval) -> Difference | None:
    """Compare two scores of which only 95 % intervals are known, as independent normal values.

    :param first: Score of the first system.
    :param second: Score of the second.
    :returns: The difference; None if an interval has no width, which is no certainty but an
        unknown.
    """
    # the longer side: an interval may have been cut where the score ends, at 0 or 1
    halves = [max(each.mean - each.low, each.high - each.mean) for each in (first, second)]
    if min(halves) <= 0:
        return None
    error = sqrt(sum(half**2 for half in halves)) / NORMAL_QUANTILE
    mean = first.mean - second.mean
    half = NORMAL_QUANTILE * error
    p_value = erfc(abs(mean) / error / sqrt(2))
    return Difference(mean, mean - half, mean + half, p_value, None, "intervals")


def win_rate(first: Values, second: Values) -> float:
    """How often the first value is the higher one.

    :param first: Values by prompt.
    :param second: Values of the other system, in the same order.
    :returns: Share of prompts, ties counted half.
    """
    return float((first > second).mean() + 0.5 * (first == second).mean())


def sign_test(num_better: int, num_worse: int) -> float:
    """Exact two-sided sign test; cases without a preference are left out.

    :param num_better: Number of cases for the first.
    :param num_worse: Number of cases for the second.
    :returns: Probability of a split at least as uneven if both were alike; 1 without cases.
    """
    num_cases = num_better + num_worse
    fewer = min(num_better, num_worse)
    tail: int = sum(comb(num_cases, k) for k in range(fewer + 1))
    return min(1.0, 2 * tail / (1 << num_cases))


def cohen_kappa(first: Sequence[Hashable], second: Sequence[Hashable]) -> float:
    """Agreement of two graders beyond chance (Cohen 1960).

    :param first: Judgements of the first grader.
    :param second: Judgements of the second, on the same cases.
    :returns: 1 for full agreement, 0 for chance; 1 if both always give the same one answer.
    :raises ValueError: If the cases differ or there are none.
    """
    num_cases = len(first)
    if not num_cases or len(second) != num_cases:
        raise ValueError("kappa needs the judgements of both graders on the same cases")
    observed = sum(a == b for a, b in zip(first, second, strict=True)) / num_cases
    counts, others = Counter(first), Counter(second)
    chance = sum(counts[answer] * others[answer] for answer in counts) / num_cases**2
    return 1.0 if chance == 1.0 else (observed - chance) / (1.0 - chance)


def krippendorff_alpha(cases: Sequence[Mapping[str, Hashable]]) -> float | None:
    """Agreement of any number of graders, some of whom may have left cases out (nominal scale).

    :param cases: Judgement by grader, for each case.
    :returns: 1 for full agreement, 0 for chance; None if no case has two judgements, or if all
        judgements are one and the same, where chance cannot be told from agreement.
    """
    totals: Counter[Hashable] = Counter()
    agreeing = 0.0
    for case in cases:
        answers = Counter(case.values())
        size = sum(answers.values())
        if size < 2:
            continue
        totals.update(answers)
        agreeing += sum(count * (count - 1) for count in answers.values()) / (size - 1)
    num_values = sum(totals.values())
    by_chance = num_values**2 - sum(count**2 for count in totals.values())
    if not by_chance:
        return None
    return 1.0 - (num_values - 1) * (num_values - agreeing) / by_chance


def _rows(values: Values) -> Values:
    rows = np.asarray(values, dtype=np.float64)
    if not len(rows):
        raise ValueError("an interval needs at least one text")
    return rows[:, None] if rows.ndim == 1 else rows


def _resample(rows: Values, *, seed: int, num_resamples: int) -> Values:
    # means of the columns over texts drawn with replacement
    random = np.random.default_rng(seed)
    num_texts = len(rows)
    block = max(1, WEIGHTS_PER_BLOCK // num_texts)
    shares = np.full(num_texts, 1.0 / num_texts)
    means = [
        random.multinomial(num_texts, shares, size=min(block, num_resamples - begin)) @ rows
        for begin in range(0, num_resamples, block)
    ]
    drawn: Values = np.concatenate(means) / num_texts
    return drawn


def _combine(means: Values, combine: Combine | None) -> Values:
    return means[:, 0] if combine is None else combine(means)


def _whole_difference(rows: Values, others: Values, combine: Combine | None) -> float:
    means = [_combine(each.mean(axis=0, keepdims=True), combine)[0] for each in (rows, others)]
    return float(means[0] - means[1])


def _tails() -> tuple[float, float]:
    return (1 - LEVEL) / 2, (1 + LEVEL) / 2


def _difference(drawn: Values, whole: float, *, win_rate: float | None) -> Difference:
    slack = 1e-12 * max(1.0, abs(whole))  # equal systems differ by rounding only
    as_large = np.abs(drawn - drawn.mean()) >= abs(whole) - slack
    p_value = (1 + int(as_large.sum())) / (1 + len(drawn))
    low, high = np.quantile(drawn, _tails())
    method = "bootstrap" if win_rate is None else "paired bootstrap"
    return Difference(whole, float(low), float(high), p_value, win_rate, method)
