"""Statistics: what documents give to a score goes in, intervals and p-values come out.

Windows of one document are not independent, so documents are what is resampled: each is left out
in turn (the jackknife of Quenouille and Tukey), and how much the score moves tells its standard
error. Intervals and tests take it with Student's quantile for that many documents. A bootstrap of
few documents gives intervals that are too narrow.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import comb, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
FindError = Callable[[Values], float]  # of sums by document
Combine = Callable[[Values], Values]  # sums of columns (..., num_columns) to scores (...)

LEVEL = 0.95
SIGNIFICANT = 0.05
MIN_CLUSTERS = 5  # fewer say nothing about chance
VALUES_PER_BLOCK = 4_000_000  # of sums held at once


@dataclass(frozen=True, slots=True)
class Interval:
    """A value and its 95 % interval, which is the value alone where chance cannot be told."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Sample:
    """What is compared: what every document gives to a score."""

    sums: Values  # (num_documents, num_columns) of the columns by document
    reference: Values | None = None  # of what really follows; None where that does not count


@dataclass(frozen=True, slots=True)
class Difference:
    """The first system against the second."""

    mean: float
    low: float  # lower end of its 95 % interval
    high: float
    # two-sided: how often chance alone makes them differ as much in what is judged: the score, or
    # its distance from the reference's
    p_value: float
    closer: int  # -1 if the first is nearer to the reference, 1 if the second; 0 if not judged
    method: str  # `paired by document` or `by document`


def sum_by_cluster(rows: Values, clusters: Sequence[Hashable]) -> Values:
    """Add up rows by what each belongs to, such as its document, in the order of first rows."""
    numbers: dict[Hashable, int] = {}
    places = [numbers.setdefault(cluster, len(numbers)) for cluster in clusters]
    sums = np.zeros((len(numbers), rows.shape[1]))
    np.add.at(sums, places, rows)
    return sums


def find_interval(
    sums: Values, combine: Combine, *, is_log: bool = False, find_error: FindError | None = None
) -> Interval:
    """The score of all documents, and its 95 % interval; none below five documents.

    ``is_log`` is for a score that is spread evenly on a logarithmic scale, as perplexity is;
    ``find_error`` for one whose standard error the jackknife does not tell. *Shape:*
    ``(num_documents, num_columns)``
    """
    mean = find_score(sums, combine)
    if len(sums) < MIN_CLUSTERS:
        return Interval(mean, mean, mean)
    scale, back = (np.log, np.exp) if is_log and mean > 0 else (_same, _same)
    error = find_error(sums) if find_error else find_jackknife(scale(leave_out(sums, combine)))
    found = make_interval(scale(mean), error, num_documents=len(sums))
    return Interval(mean, float(back(found.low)), float(back(found.high)))


def make_interval(mean: float, error: float, *, num_documents: int, num_tests: int = 1) -> Interval:
    """The interval of a number with a standard error; none below five documents.

    It holds of ``num_tests`` such numbers at once (Bonferroni).
    """
    if num_documents < MIN_CLUSTERS:
        return Interval(mean, mean, mean)
    half = error * _quantile(num_documents, num_tests)
    return Interval(mean, mean - half, mean + half)


def compare(
    first: Sample,
    second: Sample,
    combine: Combine,
    *,
    is_paired: bool,
    is_log: bool = False,
    find_error: FindError | None = None,
) -> Difference | None:
    """Compare two systems; None if chance cannot be told: too few documents, or no spread.

    They are paired if both continued the same prompts: documents, in the same order, are then left
    out of both at once. ``is_log`` tells distances from the reference on a logarithmic scale;
    ``find_error`` is as of :func:`find_interval`: the jackknife's errors are scaled to it.
    """
    num = min(len(first.sums), len(second.sums))
    if num < MIN_CLUSTERS:
        return None
    scale = np.log if is_log else _same
    wholes, parts, judged, judged_parts = [], [], [], []
    for each in (first, second):
        whole, part = find_score(each.sums, combine), leave_out(each.sums, combine)
        wholes.append(whole)
        parts.append(part)
        distance, distances = scale(whole), scale(part)
        if each.reference is not None:  # of the same documents
            distance = abs(distance - scale(find_score(each.reference, combine)))
            distances = np.abs(distances - scale(leave_out(each.reference, combine)))
        judged.append(float(distance))
        judged_parts.append(distances)
    mean, distance = wholes[0] - wholes[1], judged[0] - judged[1]
    factor = 1.0
    if find_error is not None:
        found = sum(find_error(each.sums) for each in (first, second))
        factor = found / max(sum(map(find_jackknife, parts)), 1e-12)
    half = factor * _find_joint_error(parts, is_paired=is_paired) * _quantile(num)
    error = factor * _find_joint_error(judged_parts, is_paired=is_paired)
    if not error > 1e-12 * max(1.0, abs(distance)):  # none, or no number
        if abs(distance) > 1e-12:
            return None
        p_value = 1.0
    else:
        from scipy.special import stdtr

        p_value = float(2 * stdtr(num - 1, -abs(distance) / error))
    closer = 0 if first.reference is None else int(np.sign(distance))
    method = "paired by document" if is_paired else "by document"
    return Difference(mean, mean - half, mean + half, p_value, closer, method)


def hold(differences: Sequence[Difference | None]) -> list[bool]:
    """Which differences are more than chance, all taken together (Holm's correction)."""
    known = sorted(
        (difference.p_value, number)
        for number, difference in enumerate(differences)
        if difference is not None
    )
    passed = [False] * len(differences)
    for rank, (p_value, number) in enumerate(known):
        if p_value >= SIGNIFICANT / (len(known) - rank):
            break
        passed[number] = True
    return passed


def sign_test(num_better: int, num_worse: int) -> float:
    """Exact two-sided sign test; cases without a preference are left out.

    The probability of a split at least as uneven if both were alike; 1 without cases.
    """
    num_cases = num_better + num_worse
    fewer = min(num_better, num_worse)
    tail: int = sum(comb(num_cases, k) for k in range(fewer + 1))
    return min(1.0, 2 * tail / (1 << num_cases))


def krippendorff_alpha(cases: Sequence[Mapping[str, Hashable]]) -> float | None:
    """Agreement of any number of graders, some of whom may have left cases out (nominal scale).

    1 for full agreement, 0 for chance; None if no case has two judgements, or if all judgements are
    one and the same, where chance cannot be told from agreement.
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


def find_score(sums: Values, combine: Combine) -> float:
    """The score of all documents together."""
    return float(combine(sums.sum(axis=0)[None])[0])


def leave_out(sums: Values, combine: Combine) -> Values:
    """The score of all documents but one, for each: ``(num_documents,)``."""
    total = sums.sum(axis=0)
    block = max(1, VALUES_PER_BLOCK // sums.shape[1])
    parts = [combine(total - sums[i : i + block]) for i in range(0, len(sums), block)]
    return np.concatenate(parts)


def find_jackknife(left_out: Values) -> float:
    """The jackknife's standard error, from a number of all documents but one, for each."""
    finite = left_out[np.isfinite(left_out)]
    return float(finite.std() * sqrt(len(finite) - 1)) if len(finite) > 1 else float("nan")


def _find_joint_error(parts: Sequence[Values], *, is_paired: bool) -> float:
    # of a difference
    if is_paired:
        return find_jackknife(parts[0] - parts[1])
    return sqrt(sum(find_jackknife(part) ** 2 for part in parts))


def _quantile(num: int, num_tests: int = 1) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(num - 1, 1 - (1 - LEVEL) / 2 / num_tests))


def _same(values: Any) -> Any:  # noqa: ANN401 - numbers and arrays of them
    return values
