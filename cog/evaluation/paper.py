"""The paper's tables anew: a setting goes in, its rows come out beside the published figures."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cog.evaluation.protocol import PAPER, make_protocol
from cog.evaluation.session import Plan
from cog.evaluation.studies import Study
from cog.params import Params
from cog.yaml_file import load_yaml

DECODINGS = ("greedy", "nucleus")
UNCOMPARED = {"name", "part", "seeds", "batch_size", "version"}


@dataclass(frozen=True, slots=True)
class PaperRow:
    """A row of a table of the paper, evaluated or not."""

    label: str
    system: str
    decoding: str  # `greedy` or `nucleus`
    measured: dict[str, float | None]  # by column, in the paper's unit; None if it was not
    published: dict[str, float]


def load_published() -> dict[str, Any]:
    """The paper's figures: ``columns`` and ``settings``."""
    content: dict[str, Any] = load_yaml(Path(__file__).with_name("published.yaml"))
    return content


def make_plans(setting: dict[str, Any], plan: Plan, decodings: Sequence[str]) -> dict[str, Plan]:
    """Plan every row of the tables of a setting, by ``system decoding``.

    Greedy writes one text whatever the seed.
    """
    plans = {}
    for table in setting["tables"]:
        for _, system, *_ in table["rows"]:
            for method in decodings:
                seeds = plan.protocol.seeds[: 1 if method == "greedy" else None]
                plans[f"{system} {method}"] = replace(
                    plan,
                    system=system,
                    decoding=replace(plan.decoding, method=method),
                    protocol=replace(plan.protocol, seeds=seeds),
                )
    return plans


def iter_rows(table: dict[str, Any], study: Study, decodings: Sequence[str]) -> Iterator[PaperRow]:
    """Set the results of a study beside a table of the paper."""
    columns = load_published()["columns"]
    for label, system, *figures in table["rows"]:
        for method, values in zip(DECODINGS, figures, strict=True):
            if method not in decodings:
                continue
            result = study.results.get(f"{system} {method}")
            measured: dict[str, float | None] = {}
            for column in table["columns"]:
                rule = columns[column]
                score = result.find_score(rule["score"]) if result is not None else None
                measured[column] = None if score is None else rule["factor"] * score.mean
            published = dict(zip(table["columns"], values, strict=True))
            yield PaperRow(label, system, method, measured, published)


def list_differences(
    params: Params, plan: Plan, setting: dict[str, Any], study: Study
) -> list[str]:
    """Say how a study differs from the paper."""
    found = [f"The prefix encoder is that of {params.model}, which the paper does not have."]
    if plan.corpus_id != setting["memory"]:
        found.append(f"Copied from and searched is {plan.corpus_id}, not {setting['memory']}.")
    if plan.prompt_corpus_id != setting["prompts"]:
        found.append(f"Prompts are those of {plan.prompt_corpus_id}, not {setting['prompts']}.")
    sizes = sorted({len(result.prompt_ids) for result in study.results.values()})
    found += [f"{size} prompts were continued." for size in sizes]
    paper = make_protocol(PAPER, params.evaluate).to_json()
    for name, value in plan.protocol.to_json().items():
        if name not in UNCOMPARED and value != paper[name]:
            found.append(f"{name} is {value}, in the paper {paper[name]}.")
    num_seeds = len(plan.protocol.seeds)
    found.append(f"Nucleus rows are means of {num_seeds} seed{'s' * (num_seeds > 1)}.")
    found.append("RETRO is an adapter of the prefix encoder, not trained from scratch.")
    found.append("kNN-LM chooses from the interpolated probabilities themselves.")
    found.append("MAUVE is of 100 clusters and of one text a document.")
    found.append("Latency is seconds a text in batches, on this machine.")
    return found
