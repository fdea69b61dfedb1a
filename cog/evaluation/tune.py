"""Tuning: a system and a corpus go in, the settings that suit them best are kept beside the index.

Every system gets the same number of trials, on the same held-out prompts, which no evaluation
takes.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any

from cog.baselines.system import COG, KNN_LM, NEAREST_LAST, split_settings
from cog.corpus.documents import load_prompts
from cog.decoding.settings import METHOD
from cog.decoding.tuning import Tuning, get_command, save_tuning
from cog.errors import EvaluationError
from cog.evaluation.choose import get_usual_decoding
from cog.evaluation.metrics.catalogue import METRICS
from cog.evaluation.metrics.repetition import score_texts
from cog.evaluation.planning import Wanted, make_plan
from cog.evaluation.prompts import check_tuning_prompts
from cog.evaluation.protocol import COPIES, DEFAULT, LIKELIHOOD, QUALITY, TUNING
from cog.evaluation.runner import choose_groups, require_packages, score_seeds, write_seeds
from cog.evaluation.session import Evaluation, Plan, identify, prepare
from cog.evaluation.statistics import Interval
from cog.evaluation.tune_rating import (
    SCORES,
    Parts,
    Scores,
    Trial,
    find_gain,
    find_mauve_error,
    leave_out_each,
    rate,
    take_parts,
)
from cog.evaluation.tune_settings import BUDGET, Phase, Values, list_phases
from cog.params import Params
from cog.paths import ProjectPaths
from cog.progress import Progress

RATING = attrgetter("rating")


@dataclass(frozen=True, slots=True)
class Tuned:
    """A finished search."""

    tuning: Tuning
    trials: tuple[Trial, ...]
    gain: Interval  # how much better what was chosen is rated than the first trial of its kind

    @property
    def is_useless(self) -> bool:
        """Whether no neighbours predict better than none."""
        return self.tuning.options.get("weight") == 0.0


def tune(
    paths: ProjectPaths,
    params: Params,
    corpus_id: str,
    *,
    system: str = COG,
    num_prompts: int,
    method: str,
    device: str,
    progress: Progress,
    budget: int = BUDGET,
) -> Tuned:
    """Choose the settings of a system; what was chosen lies beside the index.

    Each in turn with the best of those before, round after round while trials are left (``budget``)
    and a round finds something better. Texts and what was measured on them are kept, so a search
    that was stopped goes on. Raises ``EvaluationError`` if nothing can be chosen, or there are too
    few prompts.
    """
    require_packages()
    phases = list_phases(system, method)
    if not phases:
        raise EvaluationError(
            f"{system} must have a setting that can be chosen",
            found=f"none that {method} decoding uses",
            run=f"{get_command(corpus_id, system)} --decoding nucleus",
            about=system,
        )
    check_tuning_prompts(load_prompts(paths.corpus(corpus_id).prompts), corpus_id)
    plan = _plan(params, corpus_id, num_prompts, method, system=system, device=device)
    run = prepare(paths, params, plan, progress)
    system_now = run.system
    search = _Search(run, budget=budget)
    values = search.begin(phases)
    with run.stack:
        for number, phase in enumerate(phases):
            later = sum(1 + sum(map(len, each.steps)) for each in phases[number + 1 :])
            values = search.run(phase, values, num_left=min(later, budget // 2))
    gain = search.find_gain()
    decoding, options = split_settings(values)
    tuning = Tuning(
        values=decoding,
        options=options,
        system=system,
        index=system_now.index,
        model=system_now.model,
        method=method,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        record={
            "num_prompts": len(run.selection.prompts),
            "budget": budget,
            "protocol": run.plan.protocol.to_json(),
            "system": system_now.to_json(),
            "reference": search.reference,
            "gain": asdict(gain),
            "trials": [trial.to_json() for trial in search.trials],
        },
    )
    save_tuning(paths.corpus(corpus_id), tuning)
    return Tuned(tuning, tuple(search.trials), gain)


def _plan(
    params: Params, corpus_id: str, num_prompts: int, method: str, *, system: str, device: str
) -> Plan:
    wanted = Wanted(
        corpus_id=corpus_id,
        system=system,
        settings={METHOD: method},
        protocol=DEFAULT,
        num_prompts=num_prompts,
        device=device,
    )
    decoding = get_usual_decoding(params, system)
    usual = replace(params, generate=replace(params.generate, decoding=decoding))
    plan = make_plan(usual, wanted)
    return replace(plan, protocol=replace(plan.protocol, part=TUNING))


class _Search:
    # trials on the same prompts, one generator for all that differ in decoding alone

    def __init__(self, run: Evaluation, *, budget: int) -> None:
        self._run = run
        self._budget = budget
        self._phase = Phase(())
        self._groups: tuple[str, ...] = ()
        is_knn = run.system.name == KNN_LM
        self._most_entries = run.system.num_index_words if is_knn else 0
        self._documents = [prompt.document_id for prompt in run.selection.prompts]
        self._reference_parts: Parts = {}
        self.reference: Scores = {}
        self.trials: list[Trial] = []

    def begin(self, phases: tuple[Phase, ...]) -> Values:
        """What params.yaml says of all that is chosen."""
        names = [name for phase in phases for step in phase.steps for name in step[0]]
        usual: dict[str, Any] = {"placement": NEAREST_LAST} | asdict(self._run.plan.decoding)
        if self._most_entries:
            usual = asdict(self._run.params.datastore) | usual
            usual["top_k"] = min(usual["top_k"], self._most_entries)
        return {name: usual[name] for name in names}

    def run(self, phase: Phase, values: Values, *, num_left: int) -> Values:
        """Find the best values of a phase; so many trials are left to those after it."""
        self._phase = phase
        copies = [COPIES] * (self._run.system.name == COG)
        groups = (QUALITY, "repetition", "perplexity", *copies)
        self._run.plan = replace(
            self._run.plan, groups=groups if phase.is_by_texts else (LIKELIHOOD,)
        )
        self._groups = choose_groups(self._run)
        if phase.is_by_texts:
            self.reference, self._reference_parts = self._score_references()
        best = first = self._try(values)
        last: Trial | None = None
        tried = [first]
        while best is not last:  # the last round found something
            last = best
            for step in phase.steps:
                for values in [{**best.values, **change} for change in self._iter_fitting(step)]:
                    if len(self.trials) >= max(1, self._budget - num_left):
                        return max(tried, key=RATING).values
                    if all(each.values != values for each in tried):
                        tried.append(self._try(values))
                best = max(tried, key=RATING)
        return best.values

    def _try(self, values: Values) -> Trial:
        base = self._run
        decoding, options = split_settings(values)
        plan = replace(base.plan, decoding=replace(base.plan.decoding, **decoding), options=options)
        if options != base.plan.options:  # what writes is opened with them
            base.stack.close()
            base.generator = None
        base.plan = replace(plan, groups=self._groups)
        base.system = identify(base.paths, base.params, plan)
        seeds = write_seeds(base) if self._phase.is_by_texts else ()
        found = {score.name: score for score in score_seeds(base, seeds)}
        scores = {name: found[whole].mean for name, whole in SCORES.items() if whole in found}
        plain = next((each.scores for each in self.trials if each.is_by_texts), scores)
        trial = Trial(
            values,
            scores,
            rate(scores, reference=self.reference, plain=plain),
            parts=take_parts(found, self._documents),
            mauve_error=find_mauve_error(found, self._documents),
        )
        self.trials.append(trial)
        base.progress.say(str(trial))
        return trial

    def find_gain(self) -> Interval:
        """How much better the best trial of the last phase is than its first."""
        trials = [each for each in self.trials if each.is_by_texts == self._phase.is_by_texts]
        return find_gain(
            max(trials, key=RATING),
            trials[0],
            reference=self.reference,
            reference_parts=self._reference_parts,
            num_trials=len(trials),
        )

    def _score_references(self) -> tuple[Scores, Parts]:
        prompts = self._run.selection.prompts
        references = [prompt.reference for prompt in prompts]
        judged = self._run.judge.score_texts([prompt.prefix for prompt in prompts], references)
        scores: Scores = {}
        parts: dict[str, tuple[float, ...]] = {}
        for name, rows in (("diversity", score_texts(references)), ("perplexity", judged)):
            metric = METRICS[SCORES[name]]
            scores[name] = metric.score(rows)
            parts[name] = leave_out_each(name, rows.tolist(), self._documents)
        if not 0.0 < scores["perplexity"] < float("inf"):
            raise EvaluationError(
                "tuning needs references of finite perplexity",
                found=str(scores["perplexity"]),
                about=self._run.plan.corpus_id,
            )
        return scores, parts

    def _iter_fitting(self, step: tuple[Values, ...]) -> Iterator[Values]:
        for values in step:
            if values.get("top_k", 0) <= self._most_entries:
                yield values
