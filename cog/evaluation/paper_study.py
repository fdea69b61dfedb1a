"""The paper's tables anew: a setting goes in, its rows come out beside the published figures.

Every row is an evaluation; a row that cannot be evaluated is a gap with its reason. A study that
was stopped goes on where it stopped.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

from cog.baselines.names import TRANSFORMER
from cog.errors import CogError, EvaluationError
from cog.evaluation.paper import (
    LATENCY,
    MAUVE,
    PERPLEXITIES,
    PERPLEXITY,
    PHRASE_LENGTHS,
    REFERENCE_PERPLEXITY,
    PaperRow,
    Setting,
)
from cog.evaluation.protocol import PAPER, make_protocol
from cog.evaluation.records import EvaluationResult
from cog.evaluation.runner import evaluate
from cog.evaluation.scores import score_perplexity
from cog.evaluation.session import Plan, prepare
from cog.evaluation.tracking import Tracker
from cog.params import Params
from cog.paths import ProjectPaths
from cog.progress import Progress

# column of a table -> score of an evaluation, and what makes the paper's unit of it
SCORES = {MAUVE: ("quality/mauve", 100.0), LATENCY: ("latency/total", 1.0)}
SCORES |= {f"rep-{order}": (f"repetition/rep-{order}", 1.0) for order in (2, 3, 4)}
SCORES |= {"diversity": ("repetition/diversity", 1.0), PERPLEXITY: ("perplexity/generated", 1.0)}
UNCOMPARED = {"name", "part", "seeds", "batch_size", "max_scored_references"}

OpenProgress = Callable[..., AbstractContextManager[Progress]]


@dataclass(frozen=True, slots=True)
class StudiedRow:
    """A row of a table of the paper, evaluated or not.

    :param row: What the paper says.
    :param result: The evaluation; None for a gap.
    :param gap: Why there is none; empty if there is one.
    """

    row: PaperRow
    result: EvaluationResult | None
    gap: str

    def get(self, column: str) -> float | None:
        """A figure in the paper's unit.

        :param column: A column of the table, or ``perplexity``.
        :returns: The figure; None if it was not measured.
        """
        name, factor = SCORES[column]
        metric = self.result.find_metric(name) if self.result is not None else None
        return None if metric is None else factor * metric.mean

    def get_phrase_lengths(self) -> tuple[float, ...] | None:
        """Shares of decoding steps by the number of tokens they append, from 1 on.

        :returns: As many as the paper states; None for a system that copies nothing.
        """
        if self.result is None:
            return None
        count = len(PHRASE_LENGTHS[self.row.decoding])
        found = [self.result.find_metric(f"copies/{n}-gram") for n in range(1, count + 1)]
        if all(metric is None for metric in found):
            return None
        return tuple(0.0 if metric is None else metric.mean for metric in found)


@dataclass(frozen=True, slots=True)
class PaperStudy:
    """A finished study.

    :param setting: The experiment of the paper.
    :param rows: Its rows, in the paper's order.
    :param reference_perplexity: Perplexity of what really follows the prompts; None if it was not
        measured.
    :param differences: How it differs from the paper, a sentence each.
    :param experiment: Name of the experiment in MLflow.
    """

    setting: Setting
    rows: tuple[StudiedRow, ...]
    reference_perplexity: float | None
    differences: tuple[str, ...]
    experiment: str

    def to_json(self) -> dict[str, Any]:
        """Plain values.

        :returns: Rows with what was measured and what is published, gaps with their reasons.
        """
        columns = (*self.setting.columns, PERPLEXITY)
        return {
            "setting": self.setting.name,
            "experiment": self.experiment,
            "rows": [
                {
                    "label": each.row.label,
                    "system": each.row.system,
                    "decoding": each.row.decoding,
                    "measured": {column: each.get(column) for column in columns},
                    "published": published(each.row, self.setting),
                    "phrase_lengths": each.get_phrase_lengths(),
                    "num_prompts": len(each.result.prompt_ids) if each.result else 0,
                    "protocol": each.result.protocol.digest if each.result else None,
                    "gap": each.gap,
                }
                for each in self.rows
            ],
            "published_phrase_lengths": PHRASE_LENGTHS if self.setting.has_appendix else None,
            "reference_perplexity": {
                "measured": self.reference_perplexity,
                "published": REFERENCE_PERPLEXITY if self.setting.has_appendix else None,
            },
            "differences": list(self.differences),
        }


def published(row: PaperRow, setting: Setting) -> dict[str, float]:
    """All that the paper says of a row, its perplexity among it where it was measured.

    :param row: The row.
    :param setting: The experiment it is of.
    :returns: Figures by column.
    """
    perplexity = PERPLEXITIES.get((row.system, row.decoding)) if setting.has_appendix else None
    return {**row.published, **({} if perplexity is None else {PERPLEXITY: perplexity})}


def study_paper(
    paths: ProjectPaths,
    params: Params,
    plan: Plan,
    *,
    setting: Setting,
    decodings: Sequence[str],
    max_seconds: float | None,
    open_progress: OpenProgress,
) -> PaperStudy:
    """Evaluate every row of a table of the paper.

    :param paths: The project.
    :param params: Its parameters.
    :param plan: How; its corpora are what is copied from and whose prompts are continued, its
        system and method are not looked at.
    :param setting: The experiment.
    :param decodings: Rows of which decodings.
    :param max_seconds: Seconds after which no row is begun; None for no limit.
    :param open_progress: Shows the progress.
    :returns: The study; everything that was measured is logged to one experiment.
    """
    experiment = f"paper {setting.name}"
    tracker = Tracker(paths, experiment)
    rows = [row for row in setting.rows if row.decoding in decodings]
    studied = []
    began = time.monotonic()
    with open_progress(experiment, total=None, unit="texts") as progress:
        for number, row in enumerate(rows, start=1):
            progress.say(f"{number} of {len(rows)}: {row.label}, {row.decoding}")
            row_plan = _plan_row(plan, row)
            try:
                _check_time(time.monotonic() - began, max_seconds, row_plan)
                result = evaluate(paths, params, row_plan, progress)
            except CogError as error:
                gap = _describe_gap(error, row_plan)
                progress.say(f"a gap: {gap}")
                studied.append(StudiedRow(row, None, gap))
                continue
            if not tracker.has_result(result):
                tracker.log_result(result)
            studied.append(StudiedRow(row, result, ""))
        perplexity = _measure_references(paths, params, plan, progress)
    differences = list_differences(params, plan, setting, studied)
    return PaperStudy(setting, tuple(studied), perplexity, tuple(differences), experiment)


def _check_time(spent: float, max_seconds: float | None, plan: Plan) -> None:
    if max_seconds is not None and spent >= max_seconds:
        raise EvaluationError(
            f"a row must begin within {max_seconds:g} seconds",
            found=f"{spent:.0f} have passed",
            run="the same command again, which goes on here",
            about=plan.system,
        )


def _describe_gap(error: CogError, plan: Plan) -> str:
    # a gap always says what to run next
    if error.run:
        return str(error)
    command = (
        f"cog evaluate --corpus {plan.corpus_id} --prompts-of {plan.prompt_corpus_id} "
        f"--system {plan.system} --decoding {plan.protocol.decoding.method}"
    )
    return f"{error}; next: {command}"


def _measure_references(
    paths: ProjectPaths, params: Params, plan: Plan, progress: Progress
) -> float | None:
    # under the language model of the protocol, given their prompts, as generated text is measured
    if PERPLEXITY not in plan.groups:
        return None
    try:
        asked = replace(plan, system=TRANSFORMER, groups=(PERPLEXITY,))
        run = prepare(paths, params, asked, progress)
        prompts = run.selection.prompts
        found = run.judge.score_texts(
            [prompt.prefix for prompt in prompts], [prompt.reference for prompt in prompts]
        )
    except CogError as error:
        progress.say(f"no perplexity of the references: {error}")
        return None
    return score_perplexity([found])[0].mean


def _plan_row(plan: Plan, row: PaperRow) -> Plan:
    # greedy writes one text whatever the seed
    seeds = plan.protocol.seeds[:1] if row.decoding == "greedy" else plan.protocol.seeds
    protocol = replace(plan.protocol.with_decoding(method=row.decoding), seeds=seeds)
    return replace(plan, system=row.system, protocol=protocol)


def list_differences(
    params: Params, plan: Plan, setting: Setting, rows: Sequence[StudiedRow]
) -> list[str]:
    """Say how a study differs from the paper.

    :param params: The project's parameters.
    :param plan: How it was done.
    :param setting: The experiment of the paper.
    :param rows: What was evaluated.
    :returns: Sentences.
    """
    found = [f"The prefix encoder is that of {params.model}, which the paper does not have."]
    if plan.corpus_id != setting.memory:
        found.append(f"Copied from and searched is {plan.corpus_id}, not {setting.memory}.")
    if plan.prompt_corpus_id != setting.prompts:
        found.append(f"Prompts are those of {plan.prompt_corpus_id}, not {setting.prompts}.")
    sizes = sorted({len(row.result.prompt_ids) for row in rows if row.result is not None})
    for size in sizes:
        found.append(f"{size} prompts were continued.")
    paper = make_protocol(PAPER, params.evaluate, params.generate.decoding).to_json()
    for name, value in plan.protocol.to_json().items():
        if name not in UNCOMPARED | {"method"} and value != paper[name]:
            found.append(f"{name} is {value}, in the paper {paper[name]}.")
    num_seeds = len(plan.protocol.seeds)
    found.append(f"Nucleus rows are means of {num_seeds} seed{'s' * (num_seeds > 1)}.")
    found.append("RETRO is an adapter of the prefix encoder, not trained from scratch.")
    found.append("kNN-LM chooses from the interpolated probabilities themselves.")
    found.append("Latency is seconds a text in batches, on this machine.")
    return found
