"""Studies: several plans go in, their results side by side come out, every one of them logged.

Plans are evaluated one after another. A study that was stopped goes on where it stopped: texts and
measured numbers are kept, and a result that its experiment already holds is not logged again.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cog.baselines.system import ABLATIONS, COG, VARIANTS, resolve_system, take_used
from cog.errors import CogError, EvaluationError
from cog.evaluation.compare import Comparison, compare_results
from cog.evaluation.plot import draw, plot_index_sizes, plot_matrix, plot_systems
from cog.evaluation.records import EvaluationResult
from cog.evaluation.runner import evaluate
from cog.evaluation.session import Plan
from cog.evaluation.tracking import Tracker
from cog.params import Params
from cog.paths import ProjectPaths
from cog.progress import Progress

MATRIX = "quality/mauve"


@dataclass(frozen=True, slots=True)
class Study:
    """A finished study.

    :param comparisons: The evaluations side by side; of one set of prompts each.
    """

    experiment: str
    results: Mapping[str, EvaluationResult]
    gaps: Mapping[str, str]
    comparisons: tuple[Comparison, ...]
    figures: Mapping[str, bytes] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The study as the command line writes it."""
        return {
            "experiment": self.experiment,
            "results": {name: each.summary_to_json() for name, each in self.results.items()},
            "gaps": dict(self.gaps),
            "comparisons": [comparison.to_json() for comparison in self.comparisons],
        }


def run_plans(
    paths: ProjectPaths,
    params: Params,
    plans: Mapping[str, Plan],
    *,
    experiment: str,
    progress: Progress,
    has_gaps: bool = False,
    max_seconds: float | None = None,
) -> Study:
    """Evaluate one plan after another, and log what the experiment does not hold yet.

    :param paths: The project.
    :param params: Its parameters.
    :param plans: The plans by what they are called.
    :param experiment: Name of the experiment in MLflow.
    :param progress: Told which plan it is, and of every text.
    :param has_gaps: Whether a plan that cannot be evaluated is a gap, with its reason and what to
        run next.
    :param max_seconds: Seconds after which no plan is begun, where there may be gaps.
    :returns: The results, not compared yet.
    """
    tracker = Tracker(paths, experiment)
    results: dict[str, EvaluationResult] = {}
    gaps: dict[str, str] = {}
    began = time.monotonic()
    for number, (name, plan) in enumerate(plans.items(), start=1):
        progress.say(f"{number} of {len(plans)}: {name}")
        try:
            _check_time(time.monotonic() - began, max_seconds, plan)
            results[name] = evaluate(paths, params, plan, progress)
        except CogError as error:
            if not has_gaps:
                raise
            gaps[name] = str(error) if error.run else f"{error}; next: {_command(plan)}"
            continue
        tracker.log_result(results[name])
    return Study(experiment, results, gaps, ())


def study_index_size(
    paths: ProjectPaths,
    params: Params,
    plan: Plan,
    *,
    corpus_ids: Sequence[str],
    experiment: str,
    progress: Progress,
) -> Study:
    """Evaluate nested subsets of a corpus on the same prompts (CoG, section 5.2 and figure 3).

    :param paths: The project.
    :param params: Its parameters.
    :param plan: How.
    :param corpus_ids: The subsets, from the smallest to the largest, whose prompts are those of
        documents at the end of the random order, which no subset holds.
    :param experiment: Name of the experiment in MLflow.
    :param progress: Told of every text.
    :returns: The study; its curve is logged too.
    """
    prompts = corpus_ids[-1]
    plans = {each: replace(plan, corpus_id=each, prompt_corpus_id=prompts) for each in corpus_ids}
    study = run_plans(paths, params, plans, experiment=experiment, progress=progress)
    comparison = compare_results([*study.results.values()])
    figures = {"curve.png": draw(plot_index_sizes(comparison))}
    return _finish(paths, study, (comparison,), figures)


def study_domain(
    paths: ProjectPaths,
    params: Params,
    plan: Plan,
    *,
    corpus_ids: Sequence[str],
    experiment: str,
    progress: Progress,
) -> Study:
    """Evaluate every corpus on the prompts of every corpus.

    :param paths: The project.
    :param params: Its parameters.
    :param plan: How; its corpora are not looked at.
    :param corpus_ids: The corpora.
    :param experiment: Name of the experiment in MLflow.
    :param progress: Told of every text.
    :returns: The study; indexes are compared on one set of prompts at a time, and the whole is a
        matrix.
    """
    plans = {
        f"{corpus_id} on {prompts}": replace(plan, corpus_id=corpus_id, prompt_corpus_id=prompts)
        for prompts in corpus_ids
        for corpus_id in corpus_ids
    }
    study = run_plans(paths, params, plans, experiment=experiment, progress=progress)
    comparisons = tuple(
        compare_results([study.results[f"{each} on {prompts}"] for each in corpus_ids])
        for prompts in corpus_ids
    )
    shared = comparisons[0].metrics
    figures = {
        f"matrix-{name.rpartition('/')[2]}.png": draw(plot_matrix(comparisons, name))
        for name in (MATRIX, "likelihood/per-word")
        if name in shared
    }
    return _finish(paths, study, comparisons, figures)


def study_ablations(
    paths: ProjectPaths,
    params: Params,
    plan: Plan,
    *,
    systems: Sequence[str],
    experiment: str,
    progress: Progress,
) -> Study:
    """Evaluate CoG and its ablations on the same prompts.

    :param paths: The project.
    :param params: Its parameters.
    :param plan: How, and on which corpora; its system is not looked at.
    :param systems: The ablations; none for all. One whose settings are the plan's is CoG itself,
        and left out.
    :param experiment: Name of the experiment in MLflow.
    :param progress: Told of every text.
    :returns: The study; each is compared with CoG alone.
    :raises EvaluationError: If there is no ablation to evaluate.
    """
    own = take_used(COG, plan.decoding)
    plans = {COG: replace(plan, system=COG)}
    for name in dict.fromkeys(systems or (*VARIANTS, *ABLATIONS)):
        system, decoding = resolve_system(name, plan.decoding)
        if system != COG or take_used(COG, decoding) != own:
            plans[name] = replace(plan, system=system, decoding=decoding)
    if len(plans) == 1:
        raise EvaluationError(
            "a study of ablations needs one that differs from cog",
            found=f"cog has these settings too: {', '.join(dict.fromkeys(systems))}",
            run="pass --system with another, or leave it out",
        )
    study = run_plans(paths, params, plans, experiment=experiment, progress=progress)
    comparison = compare_results(
        [*study.results.values()], only_with_first=True, labels=[*study.results]
    )
    return _finish(paths, study, (comparison,), {"ablations.png": draw(plot_systems(comparison))})


def _finish(
    paths: ProjectPaths,
    study: Study,
    comparisons: tuple[Comparison, ...],
    figures: Mapping[str, bytes],
) -> Study:
    finished = replace(study, comparisons=comparisons, figures=figures)
    Tracker(paths, study.experiment).log_study(finished.experiment, finished.to_json(), figures)
    return finished


def _check_time(spent: float, max_seconds: float | None, plan: Plan) -> None:
    if max_seconds is not None and spent >= max_seconds:
        raise EvaluationError(
            f"a row must begin within {max_seconds:g} seconds",
            found=f"{spent:.0f} have passed",
            run="the same command again, which goes on here",
            about=plan.system,
        )


def _command(plan: Plan) -> str:
    return (
        f"cog evaluate --corpus {plan.corpus_id} --prompts-of {plan.prompt_corpus_id} "
        f"--system {plan.system} --decoding {plan.decoding.method}"
    )
