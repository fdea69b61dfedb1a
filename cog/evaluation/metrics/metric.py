"""What a metric is: rows of numbers, a direction, and how sums of rows become a score."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from cog.evaluation.records import Score
from cog.evaluation.statistics import (
    MIN_CLUSTERS,
    Combine,
    FindError,
    Interval,
    Values,
    find_interval,
    find_score,
    sum_by_cluster,
)

HIGHER = "higher"  # is better
LOWER = "lower"
NEAR = "near"  # nearer to what really follows is better
NONE = "none"  # it only describes


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric."""

    name: str  # `group/name`; the last part is unique
    combine: Combine  # makes the score of sums of columns; for many sums at once
    direction: str  # one of those above
    is_log: bool = False  # it is spread evenly on a logarithmic scale, as perplexity is
    is_by_batch: bool = False  # a row is a batch of texts instead of a text
    top: float = inf  # the largest that it can be; the smallest is 0
    is_of_size: bool = False  # it hangs on the number of texts, so that only as many are compared
    spread: Callable[[Values], Values] | None = None  # makes columns of rows stored shorter
    find_error: FindError | None = None  # None for the jackknife over documents

    def sum_rows(
        self, rows: Values | Sequence[Sequence[float]], documents: Sequence[str]
    ) -> Values:
        """Add up rows by document; a batch stands for itself.

        Of rows that are stored shorter, documents no text of which was read are left out.
        """
        values = np.array(rows, dtype=np.float64)
        columns = values if self.spread is None else self.spread(values)
        sums = columns if self.is_by_batch else sum_by_cluster(columns, documents)
        return sums if self.spread is None else sums[sums.any(axis=1)]

    def score(self, sums: Values) -> float:
        """The score of sums by document, or of rows that are columns, all together."""
        return find_score(sums, self.combine)

    def find_interval(self, sums: Values) -> Interval:
        """The score of sums by document with its interval, within what it can be."""
        found = find_interval(sums, self.combine, is_log=self.is_log, find_error=self.find_error)
        return Interval(found.mean, max(found.low, 0.0), min(found.high, self.top))


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured for one metric."""

    metric: Metric
    rows: NDArray[np.float64]  # (num_seeds, num_rows, num_columns); one for what no seed changes
    reference: NDArray[np.float64] | None = None  # of what really follows; None if it is not told
    note: str = ""  # a warning
    num_texts: int | None = None  # per seed it rests on; None for one a row


def make_score(measured: Measured, documents: Sequence[str]) -> Score:
    """Make a score with its interval."""
    metric, rows = measured.metric, measured.rows
    joined = np.concatenate(list(rows), axis=1) if metric.spread else rows.mean(axis=0)
    sums = metric.sum_rows(joined, documents)
    found = metric.find_interval(sums)
    note = measured.note
    if len(sums) < MIN_CLUSTERS and metric.direction != NONE and not note:
        what = "batches" if metric.is_by_batch else "documents"
        note = f"{len(sums)} {what} are too few for an interval"
    reference = None
    if measured.reference is not None and metric.spread is None:
        reference = metric.score(metric.sum_rows(measured.reference, documents))
    return Score(
        name=metric.name,
        mean=found.mean,
        low=found.low,
        high=found.high,
        reference=reference,
        num_texts=len(joined) if measured.num_texts is None else measured.num_texts,
        num_documents=len(sums),
        per_seed=tuple(metric.score(metric.sum_rows(each, documents)) for each in rows),
        rows=_to_rows(joined),
        reference_rows=() if reference is None else _to_rows(measured.reference),
        note=note,
    )


def ratio_of(upper: int, lower: int) -> Combine:
    """Combine two columns: the sum of one over the sum of another."""
    return lambda sums: sums[..., upper] / np.maximum(sums[..., lower], 1e-12)


def perplexity_of(log_likelihood: int, count: int) -> Combine:
    """Combine two columns: the exponential of what is lost per word, or token."""
    lost = ratio_of(log_likelihood, count)  # negative
    return lambda sums: np.exp(np.minimum(-lost(sums), 700.0))  # what has none is no infinity


def _to_rows(values: NDArray[np.float64] | None) -> tuple[tuple[float, ...], ...]:
    return () if values is None else tuple(tuple(map(float, row)) for row in values)
