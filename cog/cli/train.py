"""``cog train``: text goes in, a trained model comes out."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from cog.cli.main import get_project
from cog.cli.numbers import FiniteRange
from cog.params import load_params

if TYPE_CHECKING:
    from cog.training.job import TrainReport

FILE = click.Path(path_type=Path)
MAX_SEED = 2**32 - 1  # of numpy


@click.command("train")
@click.option("--profile", metavar="NAME", help="Profile of params.yaml [default: train.profile].")
@click.option(
    "--data",
    type=FILE,
    multiple=True,
    metavar="FILE",
    help="Text file, plain or gzip, or a folder of them; repeatable.",
)
@click.option("--licence", metavar="TEXT", help="Licence of --data, for the model's card.")
@click.option("--corpus", "corpus_id", metavar="ID", help="Train on the documents of this corpus.")
@click.option(
    "--from", "source", type=FILE, metavar="MODEL", help="Go on from this model's weights."
)
@click.option(
    "--objective",
    type=click.Choice(["copy", "tokens"]),
    default="copy",
    show_default=True,
    help="Learn to copy, or the next token only (the baseline).",
)
@click.option("--max-steps", type=click.IntRange(1), help="Number of optimiser steps.")
@click.option("--max-seconds", type=FiniteRange(0, min_open=True), help="Seconds of training.")
@click.option(
    "--out", type=FILE, metavar="DIR", help="Folder of the model [default: models/PROFILE]."
)
@click.option("--resume", is_flag=True, help="Go on from the last checkpoint in --out.")
@click.option(
    "--check-against",
    "evaluation",
    type=FILE,
    multiple=True,
    metavar="FILE",
    help="Text that must not be trained on, such as test files; repeatable.",
)
@click.option(
    "--on-overlap",
    type=click.Choice(["refuse", "drop", "keep"]),
    default="refuse",
    show_default=True,
    help="What to do with training documents that share 13 words in a row with it.",
)
@click.option(
    "--seed", type=click.IntRange(0, MAX_SEED), default=0, show_default=True, help="Seed."
)
@click.option(
    "--workers", "num_workers", type=click.IntRange(0), help="Processes that make batches."
)
@click.option(
    "--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True
)
@click.option("--experiment", default="train", show_default=True, help="Experiment in MLflow.")
@click.option("--no-track", is_flag=True, help="Log nothing to MLflow.")
@click.option("--json", "is_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> None:  # noqa: ANN401
    """Train a model on text files or on a corpus, or go on training one.

    Needs a GPU for the default profile; `--profile tiny` learns in a minute without. Ends at the
    limit of steps or seconds, or on Ctrl-C, and always writes the model.
    """
    paths = get_project(ctx)
    params = load_params(paths.params)
    from cog.evaluation.training import TrainRequest, train_with_tracking

    if bool(given["data"]) == bool(given["corpus_id"]):
        raise click.UsageError("give either --data or --corpus")
    is_default = ctx.get_parameter_source("on_overlap") is ParameterSource.DEFAULT
    if not is_default and not given["evaluation"]:
        raise click.UsageError("--on-overlap goes with --check-against")
    request = TrainRequest(
        profile=given["profile"] or params.train.profile,
        data=given["data"],
        corpus_id=given["corpus_id"],
        source=given["source"],
        objective=given["objective"],
        max_steps=given["max_steps"],
        max_seconds=given["max_seconds"],
        out=given["out"],
        is_resumed=given["resume"],
        evaluation=given["evaluation"],
        on_overlap=given["on_overlap"],
        seed=given["seed"],
        num_workers=given["num_workers"],
        device=given["device"],
        licence=given["licence"],
    )
    report = train_with_tracking(
        paths, params, request, experiment=None if given["no_track"] else given["experiment"]
    )
    if report is not None:
        _write(report, is_json=given["is_json"])


def _write(report: "TrainReport", *, is_json: bool) -> None:
    if is_json:
        click.echo(json.dumps(report.to_json(), ensure_ascii=False))
        return
    click.echo(f"{report.folder} · {report.steps} steps · {report.num_tokens:,} tokens")
    for name, value in {**report.metrics, **report.validation}.items():
        click.echo(f"{name:36} {value:9.4f}")
    click.echo(f"cog: fingerprint {report.fingerprint[:12]}; {report.reason}", err=True)
