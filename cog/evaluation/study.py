"""Studies of several evaluations: corpora go in, results of one protocol come out, all logged.

A study that was stopped goes on where it stopped: texts and measured numbers are kept, and an
evaluation that its experiment already holds is not logged again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from cog.baselines.names import COG
from cog.errors import EvaluationError
from cog.evaluation.compare import compare_results
from cog.evaluation.comparison import Comparison
from cog.evaluation.plot import plot_index_sizes, save_plot
from cog.evaluation.records import EvaluationResult
from cog.evaluation.runner import evaluate
from cog.evaluation.session import Plan
from cog.evaluation.subsets import make_subsets
from cog.evaluation.tracking import Run, Tracker
from cog.params import Params
from cog.paths import ProjectPaths
from cog.pipeline import Builder
from cog.progress import Progress
from cog.registry import load_card

CURVE = "curve.png"


@dataclass(frozen=True, slots=True)
class Study:
    """A finished study.

    :param results: The evaluations, in order.
    :param comparison: They side by side.
    :param experiment: Name of the experiment in MLflow.
    :param run: The run that holds the curve; None if there is none.
    """

    results: tuple[EvaluationResult, ...]
    comparison: Comparison
    experiment: str
    run: Run | None


def study_index_size(
    paths: ProjectPaths,
    params: Params,
    plan: Plan,
    *,
    proportions: Sequence[float],
    experiment: str,
    builder: Builder,
) -> Study:
    """Evaluate nested subsets of a corpus on the same prompts (CoG, section 5.2 and figure 3).

    The prompts are those of the largest subset: documents at the end of the random order, which no
    subset holds.

    :param paths: The project.
    :param params: Its parameters.
    :param plan: How; its corpus is the one that the subsets extend.
    :param proportions: Sizes of the subsets; those without a card or an index are made.
    :param experiment: Name of the experiment in MLflow.
    :param builder: How what is missing is made, and what shows the progress.
    :returns: The study; its curve is logged too.
    """
    corpus_ids = make_subsets(paths, plan.corpus_id, proportions)
    builder.build_missing(corpus_ids)
    plans = [
        replace(plan, corpus_id=corpus_id, prompt_corpus_id=corpus_ids[-1])
        for corpus_id in corpus_ids
    ]
    tracker = Tracker(paths, experiment)
    with builder.open_progress(experiment, total=None, unit="texts") as progress:
        results = run_plans(paths, params, plans, tracker=tracker, progress=progress)
    comparison = compare_results(results)
    with TemporaryDirectory() as folder:
        path = Path(folder, CURVE)
        save_plot(plot_index_sizes(comparison), path)
        run = tracker.log_figures("curve", {CURVE: path.read_bytes()})
    return Study(tuple(results), comparison, experiment, run)


def study_domain(
    paths: ProjectPaths,
    params: Params,
    plan: Plan,
    *,
    corpus_ids: Sequence[str],
    experiment: str,
    builder: Builder,
) -> Study:
    """Evaluate every corpus on the prompts of every corpus.

    :param paths: The project.
    :param params: Its parameters.
    :param plan: How; its corpora are not looked at.
    :param corpus_ids: The corpora, two or more; those without an index are built.
    :param experiment: Name of the experiment in MLflow.
    :param builder: How what is missing is made, and what shows the progress.
    :returns: The study; results of one prompt set follow each other.
    :raises EvaluationError: If there are fewer than two corpora.
    """
    chosen = [load_card(paths, corpus_id).id for corpus_id in dict.fromkeys(corpus_ids)]
    if len(chosen) < 2:
        raise EvaluationError(
            "a domain study needs two corpora or more",
            found=str(len(chosen)),
            run="pass --corpora A B",
        )
    builder.build_missing(chosen)
    plans = [
        replace(plan, corpus_id=corpus_id, prompt_corpus_id=prompts)
        for prompts in chosen
        for corpus_id in chosen
    ]
    tracker = Tracker(paths, experiment)
    with builder.open_progress(experiment, total=None, unit="texts") as progress:
        results = run_plans(paths, params, plans, tracker=tracker, progress=progress)
    return Study(tuple(results), compare_results(results), experiment, None)


def run_plans(
    paths: ProjectPaths,
    params: Params,
    plans: Sequence[Plan],
    *,
    tracker: Tracker,
    progress: Progress,
) -> list[EvaluationResult]:
    """Evaluate one plan after another, and log what its experiment does not hold yet.

    :param paths: The project.
    :param params: Its parameters.
    :param plans: The plans.
    :param tracker: The experiment.
    :param progress: Told which plan it is, and of every text.
    :returns: The results, in order.
    """
    results = []
    for number, plan in enumerate(plans, start=1):
        system = "" if plan.system == COG else f" with {plan.system}"
        progress.say(
            f"{number} of {len(plans)}: {plan.corpus_id}{system} "
            f"on prompts of {plan.prompt_corpus_id}"
        )
        result = evaluate(paths, params, plan, progress)
        if not tracker.has_result(result):
            tracker.log_result(result)
        results.append(result)
    return results
