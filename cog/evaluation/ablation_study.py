"""Ablations side by side: a corpus goes in, CoG and what each of its parts is worth come out.

All systems continue the same prompts. A study that was stopped goes on where it stopped.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cog.baselines.ablations.catalogue import ABLATIONS
from cog.baselines.names import COG
from cog.errors import EvaluationError
from cog.evaluation.compare import compare_results
from cog.evaluation.comparison import Comparison, Pair
from cog.evaluation.plot import plot_systems, save_plot
from cog.evaluation.records import EvaluationResult
from cog.evaluation.session import Plan
from cog.evaluation.study import run_plans
from cog.evaluation.tracking import Tracker
from cog.params import Params
from cog.paths import ProjectPaths
from cog.progress import Progress

BARS = "ablations.png"
WHOLE = "as it is"
COLUMNS = (
    "quality/mauve",
    "repetition/diversity",
    "perplexity/generated",
    "perplexity/reference",
    "copies/tokens",
    "copies/tokens-per-step",
    "latency/tokens-per-second",
)

OpenProgress = Callable[..., AbstractContextManager[Progress]]


@dataclass(frozen=True, slots=True)
class AblationStudy:
    """A finished study.

    :param results: The evaluations, CoG's own first.
    :param comparison: Each beside CoG, by the scores that all have.
    :param experiment: Name of the experiment in MLflow.
    """

    results: tuple[EvaluationResult, ...]
    comparison: Comparison
    experiment: str

    def find_pair(self, system: str, metric: str) -> Pair | None:
        """Find how a system compares with CoG.

        :param system: The system.
        :param metric: The score.
        :returns: CoG's score less the system's; None if there is none.
        """
        systems = zip(self.comparison.labels, self.results, strict=True)
        label = next(label for label, result in systems if result.system == system)
        for pair in self.comparison.pairs:
            if (pair.metric, pair.second) == (metric, label):
                return pair
        return None

    def to_json(self) -> dict[str, Any]:
        """Plain values.

        :returns: A row per system, with its scores and how they differ from CoG's.
        """
        first = self.results[0]
        return {
            "experiment": self.experiment,
            "corpus": first.corpus,
            "index": first.index,
            "prompt_corpus": first.prompt_corpus,
            "num_prompts": len(first.prompt_ids),
            "protocol": first.protocol.digest,
            "rows": [self._row_to_json(result) for result in self.results],
        }

    def _row_to_json(self, result: EvaluationResult) -> dict[str, Any]:
        pairs = {name: self.find_pair(result.system, name) for name in self.comparison.metrics}
        return {
            "system": result.system,
            "change": describe_change(result.system),
            "scores": {
                metric.name: {"mean": metric.mean, "low": metric.low, "high": metric.high}
                for metric in result.metrics
            },
            "cog_less_this": {
                name: pair.to_json() for name, pair in pairs.items() if pair is not None
            },
        }


def describe_change(system: str) -> str:
    """Say what a system changes of CoG.

    :param system: CoG or an ablation.
    :returns: A clause.
    """
    return WHOLE if system == COG else ABLATIONS[system].change


def study_ablations(
    paths: ProjectPaths,
    params: Params,
    plan: Plan,
    *,
    systems: Sequence[str],
    open_progress: OpenProgress,
) -> AblationStudy:
    """Evaluate CoG and its ablations on the same prompts.

    :param paths: The project.
    :param params: Its parameters.
    :param plan: How, and on which corpora; its system is not looked at.
    :param systems: The ablations; none for all. One whose settings are the protocol's is CoG
        itself, and left out.
    :param open_progress: Shows the progress.
    :returns: The study; every evaluation is logged to one experiment, and so is a picture.
    :raises EvaluationError: If there is no ablation to evaluate.
    """
    decoding = plan.protocol.decoding
    chosen = [
        name
        for name in dict.fromkeys(systems or ABLATIONS)
        if not (settings := ABLATIONS[name].settings) or replace(decoding, **settings) != decoding
    ]
    if not chosen:
        raise EvaluationError(
            "a study of ablations needs one that differs from cog",
            found=f"cog has these settings too: {', '.join(dict.fromkeys(systems))}",
            run="pass --system with another, or leave it out",
        )
    plans = [replace(plan, system=system) for system in (COG, *chosen)]
    experiment = f"ablations {plan.corpus_id}"
    tracker = Tracker(paths, experiment)
    with open_progress(experiment, total=None, unit="texts") as progress:
        results = run_plans(paths, params, plans, tracker=tracker, progress=progress)
    comparison = compare_results(
        results, metrics=_get_common_metrics(results), only_with_first=True
    )
    with TemporaryDirectory() as folder:
        path = Path(folder, BARS)
        save_plot(plot_systems(comparison), path)
        tracker.log_figures("ablations", {BARS: path.read_bytes()})
    return AblationStudy(tuple(results), comparison, experiment)


def _get_common_metrics(results: Sequence[EvaluationResult]) -> list[str]:
    found = [name for name in COLUMNS if all(each.find_metric(name) for each in results)]
    if found:
        return found
    names = [metric.name for metric in results[0].metrics]
    return [name for name in names if all(each.find_metric(name) for each in results)]
