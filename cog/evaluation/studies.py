"""Studies: several plans go in, their results side by side come out, every one of them logged.

Plans are evaluated one after another. A study that was stopped goes on where it stopped: texts and
measured numbers are kept, and a result that its experiment already holds is not logged again.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from cog.baselines.system import ABLATIONS, COG, VARIANTS, resolve_system, take_used
from cog.cards import Card, Subset
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
from cog.registry import iter_cards, load_card, save_card

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PER_WORD = "likelihood/per-word"
MATRICES = ("quality/mauve", PER_WORD)


@dataclass(frozen=True, slots=True)
class Study:
    """A finished study."""

    experiment: str
    results: Mapping[str, EvaluationResult]
    gaps: Mapping[str, str]
    comparisons: tuple[Comparison, ...]  # side by side, of one set of prompts each
    figures: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def notes(self) -> list[str]:
        """What is to be known beside the numbers, each once."""
        return list(dict.fromkeys(note for each in self.comparisons for note in each.notes))

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

    With ``has_gaps`` a plan that cannot be evaluated, or would begin after ``max_seconds``, is a
    gap, with its reason and what to run next. Nothing is compared yet.
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


@dataclass(frozen=True, slots=True)
class Kind:
    """What a study is of: its plans by what they are called, and what is made of their results."""

    plans: Mapping[str, Plan]
    compare: Callable[[Mapping[str, EvaluationResult]], tuple[Comparison, ...]]
    draw: Callable[[tuple[Comparison, ...]], Mapping[str, "Figure"]]


def run_study(
    paths: ProjectPaths, params: Params, kind: Kind, *, experiment: str, progress: Progress
) -> Study:
    """Evaluate the plans of a study, and log what they tell together."""
    study = run_plans(paths, params, kind.plans, experiment=experiment, progress=progress)
    comparisons = kind.compare(study.results)
    figures = {f"{name}.png": draw(figure) for name, figure in kind.draw(comparisons).items()}
    finished = replace(study, comparisons=comparisons, figures=figures)
    Tracker(paths, experiment).log_study(experiment, finished.to_json(), figures)
    return finished


def study_index_size(plan: Plan, corpus_ids: Sequence[str]) -> Kind:
    """Nested subsets of a corpus on the same prompts (CoG, section 5.2 and figure 3).

    They go from the smallest to the largest, and prompts are those of documents at the end of the
    random order, which no subset holds.
    """
    prompts = corpus_ids[-1]
    return Kind(
        {each: replace(plan, corpus_id=each, prompt_corpus_id=prompts) for each in corpus_ids},
        lambda results: (compare_results([*results.values()]),),
        lambda comparisons: {"curve": plot_index_sizes(comparisons[0])},
    )


def study_domain(plan: Plan, corpus_ids: Sequence[str]) -> Kind:
    """Every corpus on the prompts of every corpus, compared on one set of prompts at a time."""
    plans = {
        f"{corpus_id} on {prompts}": replace(plan, corpus_id=corpus_id, prompt_corpus_id=prompts)
        for prompts in corpus_ids
        for corpus_id in corpus_ids
    }
    return Kind(
        plans,
        lambda results: tuple(
            compare_results([results[f"{each} on {prompts}"] for each in corpus_ids])
            for prompts in corpus_ids
        ),
        lambda comparisons: {
            f"matrix-{name.rpartition('/')[2]}": plot_matrix(comparisons, name)
            for name in choose_matrices(comparisons)
        },
    )


def choose_matrices(comparisons: Sequence[Comparison]) -> list[str]:
    """Which scores of a study of domains are drawn: the main ones, else the first there is."""
    shared = [
        name for name in comparisons[0].metrics if all(name in each.metrics for each in comparisons)
    ]
    return [name for name in MATRICES if name in shared] or shared[:1]


def study_ablations(plan: Plan, systems: Sequence[str]) -> Kind:
    """CoG and its ablations, or all, on the same prompts, each compared with CoG alone.

    One whose settings are the plan's is CoG itself, and left out.
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
    return Kind(
        plans,
        _compare_ablations,
        lambda comparisons: {"ablations": plot_systems(comparisons[0])},
    )


def _compare_ablations(results: Mapping[str, EvaluationResult]) -> tuple[Comparison, ...]:
    # by what all have; then by the likelihood, which some have not
    first = compare_results([*results.values()], only_with_first=True, labels=[*results])
    told = {name: each for name, each in results.items() if each.find_score(PER_WORD)}
    if len(told) < 2 or PER_WORD in first.metrics:
        return (first,)
    return first, compare_results(
        [*told.values()], metrics=[PER_WORD], only_with_first=True, labels=[*told]
    )


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


SUBSET_SEED = 0


def make_subsets(paths: ProjectPaths, corpus_id: str, proportions: Sequence[float]) -> list[str]:
    """Name the nested subsets of a corpus, smallest first, and write the cards that are missing."""
    parent = load_card(paths, corpus_id)
    for proportion in proportions:
        if not 0 < proportion <= 1:
            raise EvaluationError(
                "a subset's proportion must be above 0 and at most 1",
                found=f"{proportion:g}",
                run="pass --proportions 0.01,0.1,1",
            )
    if parent.extends is not None:
        raise EvaluationError(
            "subsets must be taken of a corpus that has a source of its own",
            found=f"{corpus_id} extends {parent.extends}",
            run=f"pass --corpus {parent.extends}",
            about=corpus_id,
        )
    known = {
        card.subset.proportion: card.id
        for card in iter_cards(paths)
        if card.extends == corpus_id and card.subset is not None and card.subset.shard is None
        if card.subset.seed == SUBSET_SEED and card.prompts == parent.prompts
    }
    for proportion in sorted(set(proportions) - set(known)):
        known[proportion] = _make_subset(paths, parent, proportion)
    return [known[proportion] for proportion in sorted(set(proportions))]


def _make_subset(paths: ProjectPaths, parent: Card, proportion: float) -> str:
    percent = f"{100 * proportion:.10g}"
    card = replace(
        parent,
        id=f"{parent.id}-{percent}pct",
        title=f"{parent.title}, {percent} %",
        description=f"A random {percent} % of {parent.id} by seed, contained in every larger part; "
        "the prompts are those of the whole.",
        extends=parent.id,
        subset=Subset(proportion, SUBSET_SEED),
        source=None,
        format=None,
        normaliser=None,
        filters=None,
        deduplicate=None,
    )
    if paths.card(card.id).exists():
        raise EvaluationError(
            f"card {card.id} must be the part {proportion:g} of {parent.id}, with seed "
            f"{SUBSET_SEED} and its prompts",
            found="another card of this id",
            run=f"cog corpus show {card.id}",
            about=card.id,
        )
    save_card(paths, card)
    return card.id
