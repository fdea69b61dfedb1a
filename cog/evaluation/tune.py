"""Tuning: a corpus goes in, the decoding settings that suit its index best are kept beside it."""

from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

from cog.baselines.system import COG, take_used
from cog.corpus.documents import load_prompts
from cog.decoding.tuning import Tuning, describe_values, save_tuning
from cog.errors import EvaluationError
from cog.evaluation.metrics.perplexity import GENERATED
from cog.evaluation.metrics.repetition import combine_diversity, score_texts
from cog.evaluation.protocol import COPIES, QUALITY, make_protocol
from cog.evaluation.records import Score
from cog.evaluation.runner import choose_groups, score_seeds, write_seeds
from cog.evaluation.session import Evaluation, Plan, prepare
from cog.evaluation.tune_objective import Scores, rate
from cog.evaluation.tune_split import TUNING, check_tuning_prompts
from cog.params import Params
from cog.paths import ProjectPaths
from cog.progress import Progress
from cog.records import ABSOLUTE, ENTROPY, OFF, RELATIVE

GROUPS = (QUALITY, "repetition", "perplexity", COPIES)
Values = dict[str, Any]


def _each(name: str, *values: float) -> tuple[Values, ...]:
    return tuple({name: value} for value in values)


# what is tried in turn, each with the best of those before
SEARCH: tuple[tuple[Values, ...], ...] = (
    _each("phrase_bias", 3.0, 4.0, 5.0, 6.0),
    _each("relevance_weight", 10.0, 20.0, 30.0),
    _each("relevance_level", 0.55, 0.6, 0.65),
    _each("top_k_documents", 64, 128, 256),
    _each("min_bits", 20.0, 30.0, 40.0),
    _each("span_ratio", 0.0003, 0.001, 0.003),
    (
        {"verify": OFF, "verify_threshold": 0.0},
        *(
            {"verify": rule, "verify_threshold": threshold}
            for rule, thresholds in (
                (ABSOLUTE, (0.0001, 0.0002, 0.0003)),
                (RELATIVE, (0.001,)),
                (ENTROPY, (0.001,)),
            )
            for threshold in thresholds
        ),
    ),
)
TEMPERATURES = _each("temperature", 0.8, 0.9, 1.1)
TUNED = tuple(dict.fromkeys(name for each in (*SEARCH, TEMPERATURES) for name in each[0]))


@dataclass(frozen=True, slots=True)
class Trial:
    """One try.

    :param values: The settings.
    :param scores: What was measured.
    :param rating: How good that is; larger is better.
    """

    values: Values
    scores: Scores
    rating: float

    def to_json(self) -> dict[str, Any]:
        """The trial as plain values."""
        return {**self.values, **asdict(self.scores), "rating": self.rating}


@dataclass(frozen=True, slots=True)
class Tuned:
    """A finished search.

    :param tuning: What was chosen, as it is kept.
    :param best: The trial that was chosen.
    :param trials: All trials, in order.
    :param reference: Scores of the references.
    """

    tuning: Tuning
    best: Trial
    trials: tuple[Trial, ...]
    reference: Scores


def tune(
    paths: ProjectPaths,
    params: Params,
    corpus_id: str,
    *,
    num_prompts: int,
    method: str,
    device: str,
    progress: Progress,
) -> Tuned:
    """Choose the settings of ``SEARCH`` on held-out prompts that no evaluation takes.

    Each in turn, with the best of those before. Texts and what was measured on them are kept, so a
    search that was stopped goes on.

    :param paths: The project.
    :param params: Its parameters.
    :param corpus_id: The corpus.
    :param num_prompts: Number of prompts, at most.
    :param method: ``greedy`` or ``nucleus``.
    :param device: ``cpu``, ``cuda`` or ``auto``.
    :param progress: Told of texts and of every trial.
    :returns: The search; what was chosen lies beside the index.
    """
    check_tuning_prompts(load_prompts(paths.corpus(corpus_id).prompts), corpus_id)
    run = prepare(
        paths, params, _plan(params, corpus_id, num_prompts, method, device=device), progress
    )
    run.plan = replace(run.plan, groups=choose_groups(run))
    search_space = SEARCH if method == "greedy" else (*SEARCH, TEMPERATURES)
    progress.expect((1 + sum(map(len, search_space))) * len(run.selection.prompts))
    with run.stack:
        search = _Search(run)
        best = search.best_of([{name: getattr(params.generate.decoding, name) for name in TUNED}])
        for changes in search_space:  # greedy takes the best choice at any temperature
            best = search.best_of([best.values, *(best.values | change for change in changes)])
    tuning = Tuning(
        values=best.values,
        index=run.system.index,
        model=run.system.model,
        method=method,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        record={
            "num_prompts": len(run.selection.prompts),
            "protocol": run.plan.protocol.to_json(),
            "system": run.system.to_json(),
            "reference": asdict(search.reference),
            "trials": [trial.to_json() for trial in search.trials],
        },
    )
    save_tuning(paths.corpus(corpus_id), tuning)
    return Tuned(tuning, best, tuple(search.trials), search.reference)


def _plan(params: Params, corpus_id: str, num_prompts: int, method: str, *, device: str) -> Plan:
    rules = make_protocol("default", params.evaluate)
    protocol = replace(rules, part=TUNING, num_prompts=num_prompts)
    return Plan(
        corpus_id=corpus_id,
        prompt_corpus_id=corpus_id,
        system=COG,
        decoding=replace(params.generate.decoding, method=method),
        protocol=protocol,
        groups=GROUPS,
        allow_few_texts=False,
        allow_contamination=False,
        device=device,
    )


class _Search:
    # trials on the same prompts, one generator for all

    def __init__(self, run: Evaluation) -> None:
        self._run = run
        self.reference = _score_references(run)
        self.trials: list[Trial] = []

    def best_of(self, wanted: list[Values]) -> Trial:
        return max((self._try(values) for values in wanted), key=lambda trial: trial.rating)

    def _try(self, values: Values) -> Trial:
        for trial in self.trials:
            if trial.values == values:
                return trial
        base = self._run
        decoding = replace(base.plan.decoding, **values)
        trial_run = replace(
            base,
            plan=replace(base.plan, decoding=decoding),
            system=replace(base.system, decoding=take_used(COG, decoding)),
            seconds={},
        )
        scores = _read_scores(score_seeds(trial_run, write_seeds(trial_run)))
        base.generator = trial_run.generator
        plain = self.trials[0].scores if self.trials else scores
        trial = Trial(values, scores, rate(scores, reference=self.reference, plain=plain))
        self.trials.append(trial)
        base.progress.say(f"{describe_trial(trial)}")
        return trial


def describe_trial(trial: Trial) -> str:
    """One line on a trial."""
    scores = trial.scores
    mauve = "" if scores.mauve is None else f"MAUVE {scores.mauve:.3f}, "
    return (
        f"{trial.rating:7.3f}  {describe_values(trial.values)}: {mauve}"
        f"diversity {scores.diversity:.1f}, perplexity {scores.perplexity:.1f}, "
        f"{scores.tokens_per_step:.2f} tokens a step, "
        f"{100 * scores.copied:.0f} % copied"
    )


def _score_references(run: Evaluation) -> Scores:
    prompts = run.selection.prompts
    references = [prompt.reference for prompt in prompts]
    judged = run.judge.score_texts([prompt.prefix for prompt in prompts], references)
    perplexity = float(GENERATED.combine(judged.sum(axis=0)[None])[0])
    diversity = float(combine_diversity(score_texts(references).sum(axis=0)[None])[0])
    if not 0.0 < perplexity < float("inf"):
        raise EvaluationError(
            "tuning needs references of finite perplexity",
            found=str(perplexity),
            about=run.plan.corpus_id,
        )
    return Scores(None, diversity, perplexity, 0.0, 0.0)


def _read_scores(scores: list[Score]) -> Scores:
    found = {score.name: score.mean for score in scores}
    return Scores(
        mauve=found.get("quality/mauve"),
        diversity=found["repetition/diversity"],
        perplexity=found["perplexity/generated"],
        tokens_per_step=found["copies/tokens-per-step"],
        copied=found["copies/tokens"],
    )
