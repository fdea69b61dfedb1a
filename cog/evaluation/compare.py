"""Comparison: evaluations of one protocol go in, scores side by side and differences come out.

A system is better where it is so by more than chance: its score is higher, or lower, or nearer to
that of what really follows, as the metric says.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from typing import Any

from cog.baselines.system import System
from cog.errors import EvaluationError
from cog.evaluation.metrics.catalogue import METRICS
from cog.evaluation.metrics.mauve import MIN_TEXTS
from cog.evaluation.metrics.metric import HIGHER, NEAR, NONE, Metric
from cog.evaluation.protocol import GROUPS, QUALITY, Protocol, check_one_protocol
from cog.evaluation.records import SHOWN, EvaluationResult, Score
from cog.evaluation.statistics import Difference, Sample, Values, compare, hold

MUST_AGREE = ("decoder", "device")  # of the systems: else a difference may be that of versions


@dataclass(frozen=True, slots=True)
class Row:
    """One score of one evaluation, as :class:`~cog.evaluation.records.Score` has it."""

    label: str
    system: System
    prompt_corpus: str
    metric: str
    mean: float
    low: float
    high: float
    reference: float | None
    num_texts: int
    num_documents: int
    is_better: bool  # than every other one, by more than chance
    note: str

    def to_json(self) -> dict[str, Any]:
        """The row as the command line writes it."""
        content = {name: getattr(self, name) for name in self.__slots__}
        return content | {"system": self.system.to_json()}


@dataclass(frozen=True, slots=True)
class Pair:
    """Two evaluations compared by one score."""

    metric: str
    first: str
    second: str
    difference: Difference | None  # first minus second; None if chance cannot be told
    is_significant: bool  # more than chance, all pairs of this score taken together (Holm)
    better: str | None  # label; None if it is not significant, or if the score only describes


@dataclass(frozen=True, slots=True)
class Comparison:
    """Evaluations side by side."""

    protocol: Protocol
    labels: tuple[str, ...]
    rows: tuple[Row, ...]
    pairs: tuple[Pair, ...]
    notes: tuple[str, ...]

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the scores, in order."""
        return tuple(dict.fromkeys(row.metric for row in self.rows))

    @property
    def prompts(self) -> str:
        """Whose prompts were continued."""
        used = {row.prompt_corpus for row in self.rows}
        if len(used) == 1:
            return used.pop()
        is_own = all(row.prompt_corpus == row.system.corpus for row in self.rows)
        return "each corpus's own" if is_own else "as named"

    def get_rows(self, metric: str) -> list[Row]:
        """One score of every evaluation, in the order of the labels."""
        return [row for row in self.rows if row.metric == metric]

    def find_pair(self, metric: str, first: str, second: str) -> Pair | None:
        """How two evaluations compare in a score; None if they were not compared."""
        for pair in self.pairs:
            if (pair.metric, pair.first, pair.second) == (metric, first, second):
                return pair
        return None

    def to_json(self) -> dict[str, Any]:
        """The comparison as the command line writes it."""
        return {
            "protocol": self.protocol.to_json() | {"digest": self.protocol.digest},
            "rows": [row.to_json() for row in self.rows],
            "pairs": [asdict(pair) for pair in self.pairs],
            "notes": list(self.notes),
        }


def compare_results(
    results: Sequence[EvaluationResult],
    *,
    metrics: Sequence[str] = (),
    only_with_first: bool = False,
    labels: Sequence[str] = (),
) -> Comparison:
    """Put evaluations of one protocol, decoder and device side by side.

    Scores are named whole or by the part after the ``/``; none for all that every evaluation has.
    ``only_with_first`` compares each with the first alone: none is then better than all. Labels are
    as little as tells them apart, unless given.
    """
    labels = tuple(labels) or tuple(make_labels(results))
    check_one_protocol(zip(labels, (each.protocol for each in results), strict=True))
    check_alike(labels, results)
    numbers = [
        pair for pair in combinations(range(len(results)), 2) if not only_with_first or not pair[0]
    ]
    rows: list[Row] = []
    pairs: list[Pair] = []
    notes = _note_prompts(results)
    for name in _choose_metrics(results, labels, metrics):
        one = _Comparing(METRICS[name], results, labels)
        found = one.make_pairs(numbers)
        best = None if only_with_first else _find_best(labels, found)
        pairs += found
        rows += one.make_rows(best)
        notes += one.notes
    notes += [row.note for row in rows]
    kept = tuple(note for note in dict.fromkeys(notes) if note)
    return Comparison(results[0].protocol, labels, tuple(rows), tuple(pairs), kept)


def make_labels(results: Sequence[EvaluationResult]) -> list[str]:
    """Tell evaluations apart by as little as is needed.

    Corpus ids, with the prompts' corpus, the system, its settings and the index where they differ.
    """
    labels = [result.corpus for result in results]
    is_foreign = any(result.prompt_corpus != result.corpus for result in results)
    if is_foreign and len({result.prompt_corpus for result in results}) > 1:
        labels = [f"{a} on {b.prompt_corpus}" for a, b in zip(labels, results, strict=True)]
    systems = [result.system for result in results]
    if len({str(system) for system in systems}) > 1 or any(each.is_smoke for each in systems):
        labels = [f"{a} ({b})" for a, b in zip(labels, systems, strict=True)]
    if len(set(labels)) < len(labels):
        labels = [f"{a}{_name_own(b, systems)}" for a, b in zip(labels, systems, strict=True)]
    if len(set(labels)) < len(labels):
        labels = [f"{a} @{b.index[:8]}" for a, b in zip(labels, systems, strict=True)]
    if len(set(labels)) < len(labels):
        labels = [f"{label} #{number}" for number, label in enumerate(labels, start=1)]
    return labels


def _name_own(system: System, systems: Sequence[System]) -> str:
    # the settings in which a system differs from others of its name
    alike = [each for each in systems if each.name == system.name]
    own = {**system.settings, "precision": system.precision}
    others = [{**each.settings, "precision": each.precision} for each in alike]
    return "".join(
        f" {name}={value}"
        for name, value in own.items()
        if any(each.get(name, value) != value for each in others)
    )


def check_alike(labels: Sequence[str], results: Sequence[EvaluationResult]) -> None:
    """Refuse evaluations whose difference may be that of versions or devices."""
    for name in MUST_AGREE:
        values = [getattr(result.system, name) for result in results]
        other = next((i for i, value in enumerate(values) if value != values[0]), None)
        if other is not None:
            raise EvaluationError(
                f"evaluations must be of one {name} to be put side by side",
                found=f"{values[0]} for {labels[0]}, {values[other]} for {labels[other]}",
                run="cog evaluate the older one again, on the same device",
                about=name,
            )


def have_same_prompts(first: EvaluationResult, second: EvaluationResult) -> bool:
    """Whether two systems continued the same prompts, so that they can be compared pair by pair."""
    names = ("prompt_corpus", "prompts_digest", "prompt_ids")
    return all(getattr(first, name) == getattr(second, name) for name in names)


def _note_prompts(results: Sequence[EvaluationResult]) -> list[str]:
    # scores on different prompts have different references
    if len({(result.prompts_digest, result.prompt_ids) for result in results}) == 1:
        return []
    ids = ",".join(dict.fromkeys(result.corpus for result in results))
    return [
        "prompts differ, so scores have different references: what index suits which texts is told "
        f"by cog paper study domain --corpora {ids}"
    ]


def _choose_metrics(
    results: Sequence[EvaluationResult], labels: Sequence[str], wanted: Sequence[str]
) -> list[str]:
    if not wanted:
        shared = [
            score.name
            for score in results[0].scores
            if score.name in METRICS and all(result.find_score(score.name) for result in results)
        ]
        return sorted(shared, key=lambda name: GROUPS.index(name.partition("/")[0]))
    for name in wanted:
        for result, label in zip(results, labels, strict=True):
            if result.find_score(name) is None:
                known = ", ".join(each.name.rpartition("/")[2] for each in result.scores)
                raise EvaluationError(
                    f"the evaluation of {label} must hold the score {name}",
                    found=f"only {known}",
                    run="pass --metric with one of these, or evaluate again",
                    about=name,
                )
    found = [results[0].find_score(name) for name in wanted]
    return list(dict.fromkeys(score.name for score in found if score is not None))


class _Comparing:
    # one score of all evaluations, at equal numbers of texts where it hangs on them

    def __init__(
        self, metric: Metric, results: Sequence[EvaluationResult], labels: Sequence[str]
    ) -> None:
        self.metric, self.results, self.labels = metric, results, labels
        found = [result.find_score(metric.name) for result in results]
        self.scores = [score for score in found if score is not None]
        self.notes: list[str] = []
        self.samples = [
            self._make_sample(score, result)
            for score, result in zip(self.scores, results, strict=True)
        ]
        sizes = [len(sample.sums) for sample in self.samples]
        self.size = min(sizes)
        self.is_cut = metric.is_of_size and len(set(sizes)) > 1
        if self.is_cut:
            self.samples = [Sample(each.sums[: self.size]) for each in self.samples]
            self.notes.append(
                f"{metric.name} hangs on the number of texts: of each the first {self.size} "
                "documents count"
            )

    def _make_sample(self, score: Score, result: EvaluationResult) -> Sample:
        reference: Values | None = None
        if self.metric.direction == NEAR and score.reference_rows:
            reference = self.metric.sum_rows(score.reference_rows, result.document_ids)
        return Sample(self.metric.sum_rows(score.rows, result.document_ids), reference)

    def make_pairs(self, numbers: Sequence[tuple[int, int]]) -> list[Pair]:
        differences = [self._compare(first, second) for first, second in numbers]
        pairs = []
        for (i, k), difference, holds in zip(numbers, differences, hold(differences), strict=True):
            names = self.labels[i], self.labels[k]
            better = self._find_better(difference, *names) if difference and holds else None
            pairs.append(Pair(self.metric.name, *names, difference, holds, better))
        return pairs

    def _compare(self, first: int, second: int) -> Difference | None:
        if self.metric.name.startswith(QUALITY) and self.size < MIN_TEXTS:
            return None
        has_same = have_same_prompts(self.results[first], self.results[second])
        return compare(
            self.samples[first],
            self.samples[second],
            self.metric.combine,
            is_paired=has_same and not self.metric.is_by_batch,
            is_log=self.metric.is_log,
            find_error=self.metric.find_error,
        )

    def _find_better(self, difference: Difference, first: str, second: str) -> str | None:
        if self.metric.direction == NONE:
            return None
        if self.metric.direction == NEAR:
            return {-1: first, 1: second}.get(difference.closer)
        return first if (difference.mean > 0) == (self.metric.direction == HIGHER) else second

    def make_rows(self, best: str | None) -> list[Row]:
        scores = [*map(self._cut, self.scores, self.samples)] if self.is_cut else self.scores
        return [
            Row(
                label=label,
                system=result.system,
                prompt_corpus=result.prompt_corpus,
                metric=score.name,
                is_better=label == best,
                **{name: getattr(score, name) for name in (*SHOWN, "num_documents")},
            )
            for label, result, score in zip(self.labels, self.results, scores, strict=True)
        ]

    def _cut(self, score: Score, sample: Sample) -> Score:
        found, size = self.metric.find_interval(sample.sums), len(sample.sums)
        return replace(score, **asdict(found), num_texts=size, num_documents=size)


def _find_best(labels: Sequence[str], pairs: Sequence[Pair]) -> str | None:
    # the one that is better than every other
    for label in labels:
        own = [pair for pair in pairs if label in (pair.first, pair.second)]
        if own and all(pair.better == label for pair in own):
            return label
    return None
