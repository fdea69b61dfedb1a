"""Studies of several evaluations: corpora go in, results of one protocol come out, all logged.

A study that was stopped goes on where it stopped: texts and measured numbers are kept, and an
evaluation that its experiment already holds is not logged again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from cog.errors import EvaluationError
from cog.evaluation.compare import Comparison, compare_results
from cog.evaluation.plot import plot_index_sizes, save_plot
from cog.evaluation.records import EvaluationResult
from cog.evaluation.runner import evaluate
from cog.evaluation.session import Plan
from cog.evaluation.tracking import Run, Tracker
from cog.index.manifest import load_manifest
from cog.params import Params
from cog.paths import ProjectPaths
from cog.progress import Progress
from cog.registry import iter_cards, load_card

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


def find_subsets(paths: ProjectPaths, corpus_id: str, proportions: Sequence[float]) -> list[str]:
    """Find the cards of nested subsets of a corpus.

    :param paths: The project.
    :param corpus_id: The corpus that they extend.
    :param proportions: Their sizes, as in the cards.
    :returns: Corpus ids, from the smallest to the largest.
    :raises EvaluationError: If a size has no card.
    """
    load_card(paths, corpus_id)
    known = {
        card.subset.proportion: card.id
        for card in iter_cards(paths)
        if card.extends == corpus_id and card.subset is not None
    }
    for proportion in proportions:
        if proportion not in known:
            sizes = ", ".join(f"{size:g}" for size in sorted(known))
            raise EvaluationError(
                f"a card must extend {corpus_id} with the proportion {proportion:g}",
                found=f"cards of {sizes}" if known else "no card of a subset",
                run=f"write registry/cards/{corpus_id}-….yaml with extends and subset",
                about=corpus_id,
            )
    return [known[proportion] for proportion in sorted(set(proportions))]


def study_index_size(
    paths: ProjectPaths,
    params: Params,
    plan: Plan,
    *,
    proportions: Sequence[float],
    experiment: str,
    progress: Progress,
) -> Study:
    """Evaluate nested subsets of a corpus on the same prompts (CoG, section 5.2 and figure 3).

    The prompts are those of the largest subset: documents at the end of the random order, which no
    subset holds.

    :param paths: The project.
    :param params: Its parameters.
    :param plan: How; its corpus is the one that the subsets extend.
    :param proportions: Sizes of the subsets.
    :param experiment: Name of the experiment in MLflow.
    :param progress: Told of what is done.
    :returns: The study; its curve is logged too.
    """
    corpus_ids = find_subsets(paths, plan.corpus_id, proportions)
    _check_built(paths, corpus_ids)
    plans = [
        replace(plan, corpus_id=corpus_id, prompt_corpus_id=corpus_ids[-1])
        for corpus_id in corpus_ids
    ]
    tracker = Tracker(paths, experiment)
    results = _run(paths, params, plans, tracker=tracker, progress=progress)
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
    progress: Progress,
) -> Study:
    """Evaluate every corpus on the prompts of every corpus.

    :param paths: The project.
    :param params: Its parameters.
    :param plan: How; its corpora are not looked at.
    :param corpus_ids: The corpora, two or more.
    :param experiment: Name of the experiment in MLflow.
    :param progress: Told of what is done.
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
    _check_built(paths, chosen)
    plans = [
        replace(plan, corpus_id=corpus_id, prompt_corpus_id=prompts)
        for prompts in chosen
        for corpus_id in chosen
    ]
    tracker = Tracker(paths, experiment)
    results = _run(paths, params, plans, tracker=tracker, progress=progress)
    return Study(tuple(results), compare_results(results), experiment, None)


def _run(
    paths: ProjectPaths,
    params: Params,
    plans: Sequence[Plan],
    *,
    tracker: Tracker,
    progress: Progress,
) -> list[EvaluationResult]:
    results = []
    for number, plan in enumerate(plans, start=1):
        progress.say(
            f"{number} of {len(plans)}: {plan.corpus_id} on prompts of {plan.prompt_corpus_id}"
        )
        result = evaluate(paths, params, plan, progress)
        if not tracker.has_result(result):
            tracker.log_result(result)
        results.append(result)
    return results


def _check_built(paths: ProjectPaths, corpus_ids: Sequence[str]) -> None:
    # before the first evaluation, so that a study does not stop at the last corpus
    missing = [each for each in corpus_ids if not paths.corpus(each).manifest.is_file()]
    if missing:
        raise EvaluationError(
            "every corpus of a study must have an index",
            found=f"none of {', '.join(missing)}",
            run="add them to corpora in params.yaml, then dvc repro "
            + " ".join(f"index@{each}" for each in missing),
            about=missing[0],
        )
    for corpus_id in corpus_ids:
        load_manifest(paths.corpus(corpus_id))
