"""The paper's tables anew: a setting goes in, its rows come out beside the published figures.

Every row is an evaluation; a row that cannot be evaluated is a gap with its reason. A study that
was stopped goes on where it stopped.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

from cog.errors import CogError
from cog.evaluation.paper import (
    LATENCY,
    MAUVE,
    PERPLEXITIES,
    PERPLEXITY,
    PHRASE_LENGTHS,
    PaperRow,
    Setting,
)
from cog.evaluation.protocol import PAPER, make_protocol
from cog.evaluation.records import EvaluationResult
from cog.evaluation.runner import evaluate
from cog.evaluation.session import Plan
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
        """Shares of copied phrases by number of words, from 1 word on.

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
    :param differences: How it differs from the paper, a sentence each.
    :param experiment: Name of the experiment in MLflow.
    """

    setting: Setting
    rows: tuple[StudiedRow, ...]
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
                    "published": published(each.row),
                    "phrase_lengths": each.get_phrase_lengths(),
                    "num_prompts": len(each.result.prompt_ids) if each.result else 0,
                    "protocol": each.result.protocol.digest if each.result else None,
                    "gap": each.gap,
                }
                for each in self.rows
            ],
            "published_phrase_lengths": PHRASE_LENGTHS,
            "differences": list(self.differences),
        }


def published(row: PaperRow) -> dict[str, float]:
    """All that the paper says of a row, its perplexity among it.

    :param row: The row.
    :returns: Figures by column.
    """
    perplexity = PERPLEXITIES.get((row.system, row.decoding))
    return {**row.published, **({} if perplexity is None else {PERPLEXITY: perplexity})}


def study_paper(
    paths: ProjectPaths,
    params: Params,
    plan: Plan,
    *,
    setting: Setting,
    decodings: Sequence[str],
    open_progress: OpenProgress,
) -> PaperStudy:
    """Evaluate every row of a table of the paper.

    :param paths: The project.
    :param params: Its parameters.
    :param plan: How; its corpora are what is copied from and whose prompts are continued, its
        system and method are not looked at.
    :param setting: The experiment.
    :param decodings: Rows of which decodings.
    :param open_progress: Shows the progress.
    :returns: The study; everything that was measured is logged to one experiment.
    """
    experiment = f"paper {setting.name}"
    tracker = Tracker(paths, experiment)
    rows = [row for row in setting.rows if row.decoding in decodings]
    studied = []
    with open_progress(experiment, total=None, unit="texts") as progress:
        for number, row in enumerate(rows, start=1):
            progress.say(f"{number} of {len(rows)}: {row.label}, {row.decoding}")
            try:
                result = evaluate(paths, params, _plan_row(plan, row), progress)
            except CogError as error:
                progress.say(f"a gap: {error}")
                studied.append(StudiedRow(row, None, str(error)))
                continue
            if not tracker.has_result(result):
                tracker.log_result(result)
            studied.append(StudiedRow(row, result, ""))
    differences = list_differences(params, plan, setting, studied)
    return PaperStudy(setting, tuple(studied), tuple(differences), experiment)


def _plan_row(plan: Plan, row: PaperRow) -> Plan:
    # greedy writes one text whatever the seed
    seeds = plan.protocol.seeds[:1] if row.decoding == "greedy" else plan.protocol.seeds
    protocol = replace(plan.protocol, method=row.decoding, seeds=seeds)
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
    paper = make_protocol(PAPER, params.evaluate, params.generate).to_json()
    for name, value in plan.protocol.to_json().items():
        if name not in UNCOMPARED | {"method"} and value != paper[name]:
            found.append(f"{name} is {value}, in the paper {paper[name]}.")
    num_seeds = len(plan.protocol.seeds)
    found.append(f"Nucleus rows are means of {num_seeds} seed{'s' * (num_seeds > 1)}.")
    found.append("RETRO is an adapter of the prefix encoder, not trained from scratch.")
    found.append("kNN-LM chooses from the interpolated probabilities themselves.")
    found.append("Latency is seconds a text in batches, on this machine.")
    return found
