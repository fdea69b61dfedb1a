"""Comparison: evaluations of one protocol go in, scores side by side and differences come out.

Which score is better is said only where the difference is more than chance.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from cog.errors import EvaluationError
from cog.evaluation.comparison import Comparison, Pair, Row
from cog.evaluation.metrics.mauve import MIN_TEXTS
from cog.evaluation.protocol import GROUPS, check_one_protocol
from cog.evaluation.records import EvaluationResult, MetricValue
from cog.evaluation.statistics import (
    SIGNIFICANT,
    Difference,
    Interval,
    Values,
    compare_intervals,
    compare_paired,
    compare_unpaired,
    win_rate,
)


@dataclass(frozen=True, slots=True)
class _Side:
    # a score and where it comes from
    result: EvaluationResult
    value: MetricValue


def compare_results(
    results: Sequence[EvaluationResult],
    *,
    metrics: Sequence[str] = (),
    across: Sequence[str] = (),
    only_with_first: bool = False,
) -> Comparison:
    """Put evaluations side by side.

    :param results: The evaluations, at least one.
    :param metrics: Names of the scores, whole or the part after the ``/``; none for all that every
        evaluation has.
    :param across: Rules of the protocol that are compared, and so may differ.
    :param only_with_first: Compare each with the first alone; none is then better than all.
    :returns: The comparison.
    :raises EvaluationError: If an evaluation lacks a score that was asked for.
    """
    labels = make_labels(results, across=across)
    named = list(zip(labels, results, strict=True))
    check_one_protocol(((label, result.protocol) for label, result in named), across=across)
    rows: list[Row] = []
    pairs: list[Pair] = []
    numbers = list(combinations(range(len(results)), 2))
    if only_with_first:
        numbers = [(first, second) for first, second in numbers if first == 0]
    for name in _choose_metrics(results, labels, metrics):
        values = [_get_metric(result, label, name) for label, result in named]
        found = _compare_metric(results, labels, values, numbers=numbers)
        pairs += found
        best = None if only_with_first else _find_best(labels, found)
        rows += [
            _make_row(result, label, value, is_better=label == best, across=across)
            for (label, result), value in zip(named, values, strict=True)
        ]
    return Comparison(results[0].protocol, tuple(across), tuple(labels), tuple(rows), tuple(pairs))


def make_labels(results: Sequence[EvaluationResult], *, across: Sequence[str] = ()) -> list[str]:
    """Tell evaluations apart by as little as is needed.

    :param results: The evaluations.
    :param across: Rules of the protocol that are compared.
    :returns: Corpus ids, with the prompts' corpus, the system, the rules that are compared and the
        index where they differ.
    """
    labels = [result.corpus for result in results]
    is_foreign = any(result.prompt_corpus != result.corpus for result in results)
    if is_foreign and len({result.prompt_corpus for result in results}) > 1:
        pairs = zip(labels, results, strict=True)
        labels = [f"{label} on {result.prompt_corpus}" for label, result in pairs]
    if len({result.system for result in results}) > 1:
        pairs = zip(labels, results, strict=True)
        labels = [f"{label} ({result.system})" for label, result in pairs]
    for name in across:
        pairs = zip(labels, results, strict=True)
        labels = [f"{label} {result.protocol.to_json()[name]}" for label, result in pairs]
    if len(set(labels)) < len(labels):
        pairs = zip(labels, results, strict=True)
        labels = [f"{label} @{result.index[:8]}" for label, result in pairs]
    if len(set(labels)) < len(labels):
        labels = [f"{label} #{number}" for number, label in enumerate(labels, start=1)]
    return labels


def have_same_prompts(first: EvaluationResult, second: EvaluationResult) -> bool:
    """Whether two systems continued the same prompts, so that they can be compared pair by pair.

    :param first: An evaluation.
    :param second: Another.
    :returns: True if their prompts are the same, in order.
    """
    return (
        first.prompt_corpus == second.prompt_corpus
        and first.prompt_ids == second.prompt_ids
        and _prefixes(first) == _prefixes(second)
    )


def _prefixes(result: EvaluationResult) -> list[str]:
    return [text.generation.prefix for text in result.seeds[0].texts]


def _choose_metrics(
    results: Sequence[EvaluationResult], labels: Sequence[str], wanted: Sequence[str]
) -> list[str]:
    if not wanted:
        shared = [
            metric.name
            for metric in results[0].metrics
            if all(result.find_metric(metric.name) for result in results)
        ]
        return sorted(shared, key=_group_of)
    return [_get_metric(results[0], labels[0], name).name for name in dict.fromkeys(wanted)]


def _group_of(name: str) -> int:
    group = name.partition("/")[0]
    return GROUPS.index(group) if group in GROUPS else len(GROUPS)


def _get_metric(result: EvaluationResult, label: str, name: str) -> MetricValue:
    metric = result.find_metric(name)
    if metric is None:
        known = ", ".join(each.name.rpartition("/")[2] for each in result.metrics)
        raise EvaluationError(
            f"the evaluation of {label} must hold the score {name}",
            found=f"only {known}",
            run="pass --metric with one of these, or evaluate again",
            about=name,
        )
    return metric


def _compare_metric(
    results: Sequence[EvaluationResult],
    labels: Sequence[str],
    values: Sequence[MetricValue],
    *,
    numbers: Sequence[tuple[int, int]],
) -> list[Pair]:
    sides = [_Side(result, value) for result, value in zip(results, values, strict=True)]
    differences = [_compare_two(sides[i], sides[k]) for i, k in numbers]
    significant = _hold(differences)
    direction = values[0].is_higher_better
    pairs = []
    for (i, k), difference, is_significant in zip(numbers, differences, significant, strict=True):
        better = None
        if is_significant and difference is not None and direction is not None:
            better = labels[i] if (difference.mean > 0) == direction else labels[k]
        note = _find_note(sides[i], sides[k], difference)
        pairs.append(
            Pair(values[i].name, labels[i], labels[k], difference, is_significant, better, note)
        )
    return pairs


def _compare_two(first: _Side, second: _Side) -> Difference | None:
    values = (first.value, second.value)
    if min(value.num_texts for value in values) < MIN_NUM_TEXTS.get(values[0].name, 1):
        return None
    if not values[0].per_prompt or not values[1].per_prompt:
        intervals = [Interval(value.mean, value.low, value.high) for value in values]
        return compare_intervals(*intervals)
    scale = _get_scale(values[0].name)
    one, other = (scale.per_prompt(_get_independent(side)) for side in (first, second))
    is_paired = have_same_prompts(first.result, second.result) and len(one) == len(other)
    has_spread = _varies(one - other) if is_paired else _varies(one) or _varies(other)
    is_equal = is_paired and bool((one == other).all())
    if min(len(one), len(other)) < MIN_VALUES or not (has_spread or is_equal):
        return None
    compare = compare_paired if is_paired else compare_unpaired
    found = compare(one, other, combine=scale.of_means)
    if found.win_rate is not None and values[0].is_higher_better is False:
        found = replace(found, win_rate=1 - win_rate(one, other))
    return _centre(found, values[0].mean - values[1].mean)


def _find_note(first: _Side, second: _Side, difference: Difference | None) -> str:
    sides = (first, second)
    if difference is None or not all(side.value.per_prompt for side in sides):
        return ""
    count = min(len(_get_independent(side)) for side in sides)
    if count >= FEW_VALUES:
        return ""
    what = "batches" if first.value.name.startswith("latency/") else "prompts"
    return (
        f"{count} {what}: below {FEW_VALUES} a bootstrap finds differences too easily, "
        "and its intervals are too narrow"
    )


def _varies(values: Values) -> bool:
    return bool(np.ptp(values) > 1e-9 * np.abs(values).max())


def _get_independent(side: _Side) -> Values:
    # texts of a batch share its seconds, so a batch counts once
    values = np.array(side.value.per_prompt)
    if not side.value.name.startswith("latency/"):
        return values
    size = side.result.protocol.batch_size
    return np.array([values[i : i + size].mean() for i in range(0, len(values), size)])


@dataclass(frozen=True, slots=True)
class _Scale:
    # how the values of single prompts are averaged, so that the average is the score of all
    per_prompt: Callable[[Values], Values]
    of_means: Callable[[Values], Values]


FEW_VALUES = 30  # fewer are flagged: a bootstrap knows their spread too badly
MIN_VALUES = 5  # fewer independent values say nothing about chance
MIN_NUM_TEXTS = {"quality/mauve": MIN_TEXTS}
PLAIN = _Scale(lambda values: values, lambda means: means[:, 0])
SCALES = {  # by the beginning of the score's name
    # perplexities are averaged as logarithms, speeds as seconds a token
    "perplexity/": _Scale(np.log, lambda means: np.exp(means[:, 0])),
    "latency/tokens-per-second": _Scale(lambda values: 1 / values, lambda means: 1 / means[:, 0]),
}


def _get_scale(name: str) -> _Scale:
    return next((scale for prefix, scale in SCALES.items() if name.startswith(prefix)), PLAIN)


def _centre(difference: Difference, mean: float) -> Difference:
    # scores of all texts weigh tokens, not prompts, which moves a difference a little
    moved = mean - difference.mean
    return replace(difference, mean=mean, low=difference.low + moved, high=difference.high + moved)


def _hold(differences: Sequence[Difference | None]) -> list[bool]:
    # Holm: the smallest p-value must pass at 0.05 / number of pairs, the next at one less, ...
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


def _find_best(labels: Sequence[str], pairs: Sequence[Pair]) -> str | None:
    # the one that is better than every other
    for label in labels:
        own = [pair for pair in pairs if label in (pair.first, pair.second)]
        if own and all(pair.better == label for pair in own):
            return label
    return None


def _make_row(
    result: EvaluationResult,
    label: str,
    value: MetricValue,
    *,
    is_better: bool,
    across: Sequence[str],
) -> Row:
    return Row(
        label=label,
        corpus=result.corpus,
        prompt_corpus=result.prompt_corpus,
        system=result.system,
        differs={name: result.protocol.to_json()[name] for name in across},
        index=result.index,
        num_index_words=result.num_index_words,
        metric=value.name,
        mean=value.mean,
        low=value.low,
        high=value.high,
        num_texts=value.num_texts,
        is_better=is_better,
        note=value.note,
    )
