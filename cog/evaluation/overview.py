"""An overview: a project goes in, its evaluations come out, grouped by what may be compared."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cog.baselines.system import COG, find_short_name
from cog.errors import CogError
from cog.evaluation.choose import find_results, is_current
from cog.evaluation.compare import Comparison, compare_results
from cog.evaluation.records import SHOWN, EvaluationResult
from cog.evaluation.tracking import find_runs
from cog.params import load_params
from cog.paths import ProjectPaths
from cog.registry import iter_corpus_ids


@dataclass(frozen=True, slots=True)
class Group:
    """Evaluations of one protocol on the prompts of one corpus."""

    results: tuple[EvaluationResult, ...]
    comparison: Comparison
    is_current: tuple[bool, ...]
    sides: tuple[str, ...]  # what a blind study calls each: a corpus, or `corpus:system`
    runs: dict[int, tuple[str, str | None]]  # id and address of where they were logged, by position

    def to_json(self) -> dict[str, Any]:
        """The group as plain values; scores that not all have are among its rows, too."""
        comparison, first = self.comparison, self.results[0]
        better = {(row.label, row.metric) for row in comparison.rows if row.is_better}
        shown = {(row.label, row.metric): row for row in comparison.rows}
        rows = [
            self._identify(label, result)
            | {name: getattr(shown.get((label, score.name), score), name) for name in SHOWN}
            | {"prompt_corpus": result.prompt_corpus, "metric": score.name}
            | {"is_better": (label, score.name) in better}
            for label, result in zip(comparison.labels, self.results, strict=True)
            for score in result.scores
        ]
        order = {name: number for number, name in enumerate(comparison.metrics)}
        rows.sort(key=lambda row: order.get(row["metric"], len(order)))
        protocol = comparison.protocol
        return {
            "protocol": {
                "name": protocol.name,
                "digest": protocol.digest,
                "fields": protocol.to_json(),
            },
            "prompts": first.prompt_corpus,
            "labels": list(comparison.labels),
            "metrics": list(dict.fromkeys(row["metric"] for row in rows)),
            "rows": rows,
            "pairs": [asdict(pair) for pair in comparison.pairs],
            "evaluations": [self._describe(i) for i in range(len(self.results))],
        }

    @staticmethod
    def _identify(label: str, result: EvaluationResult) -> dict[str, Any]:
        return {
            "label": label,
            "corpus": result.corpus,
            "system": str(result.system),
            "index": result.system.index,
            "num_index_words": result.system.num_index_words,
        }

    def _describe(self, position: int) -> dict[str, Any]:
        result = self.results[position]
        run_id, run_url = self.runs.get(position, (None, None))
        return self._identify(self.comparison.labels[position], result) | {
            "side": self.sides[position],
            "created_at": result.created_at,
            "is_current": self.is_current[position],
            "run_id": run_id,
            "run_url": run_url,
        }


@dataclass(frozen=True, slots=True)
class Overview:
    """All kept evaluations."""

    groups: tuple[Group, ...]  # those that may be compared, together; the largest first
    problems: tuple[str, ...]

    @property
    def notes(self) -> list[str]:
        """What is to be known beside the numbers, each once."""
        return list(dict.fromkeys(note for each in self.groups for note in each.comparison.notes))


def load_overview(paths: ProjectPaths) -> Overview:
    """Group all evaluations of a project by protocol and prompts."""
    by_rules: dict[tuple[str, str, int, str], list[EvaluationResult]] = {}
    problems = []
    for corpus_id in _list_evaluated(paths):
        try:
            found = find_results(paths, corpus_id)
        except CogError as error:
            problems.append(str(error))
            continue
        for result in found:
            system = result.system  # of other decoders and devices nothing is compared
            rules = (result.protocol.digest, result.prompt_corpus, system.decoder, system.device)
            by_rules.setdefault(rules, []).append(result)
    groups = []
    for results in by_rules.values():
        try:
            groups.append(_make_group(paths, results, problems))
        except CogError as error:
            problems.append(str(error))
    groups.sort(key=lambda group: -len(group.results))
    return Overview(tuple(groups), tuple(dict.fromkeys(problems)))


def _list_evaluated(paths: ProjectPaths) -> list[str]:
    # corpora with a card, and unions of them
    folders = sorted(each.parent.name for each in paths.corpora.glob("*/evaluations"))
    folders += [each.parent.name for each in sorted(paths.corpora.glob("*/evaluation.json"))]
    known = set(iter_corpus_ids(paths))
    return [each for each in dict.fromkeys(folders) if known.issuperset(each.split("+"))]


def _make_group(
    paths: ProjectPaths, results: Sequence[EvaluationResult], problems: list[str]
) -> Group:
    params = load_params(paths.params)
    current = [is_current(paths, params, result) for result in results]
    runs: dict[int, tuple[str, str | None]] = {}
    try:
        runs = find_runs(paths, results)
    except CogError as error:
        problems.append(str(error))
    comparison = compare_results(results)
    usual = params.generate.decoding
    named = [(each.corpus, find_short_name(each.system, usual)) for each in results]
    sides = [corpus if name == COG else f"{corpus}:{name}" for corpus, name in named]
    return Group(tuple(results), comparison, tuple(current), tuple(sides), runs)
