"""``cog train``: text goes in, a trained model comes out."""

import json
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from cog.cli.main import check_stage, get_project, get_project_of
from cog.cli.options import (
    FOLDER,
    device_option,
    json_option,
    resume_option,
    seconds_option,
    stage_option,
    steps_option,
    track_option,
)
from cog.params import load_params

if TYPE_CHECKING:
    from cog.training.job import TrainReport

MAX_SEED = 2**32 - 1  # of numpy


@click.command("train")
@click.option("--profile", metavar="NAME", help="Profile of params.yaml [default: train.profile].")
@click.option(
    "--data",
    type=FOLDER,
    multiple=True,
    metavar="FILE",
    help="Text file, plain, .gz or .zst, or a folder of them; repeatable.",
)
@click.option("--licence", metavar="TEXT", help="Licence of --data, for the model's card.")
@click.option("--corpus", "corpus_id", metavar="ID", help="Train on the documents of this corpus.")
@click.option(
    "--from", "source", type=FOLDER, metavar="MODEL", help="Go on from this model's weights."
)
@click.option(
    "--objective",
    type=click.Choice(["copy", "tokens"]),
    default="copy",
    show_default=True,
    help="Learn to copy, or the next token only (the baseline).",
)
@steps_option
@seconds_option
@click.option(
    "--out", type=FOLDER, metavar="DIR", help="Folder of the model [default: models/PROFILE]."
)
@resume_option
@click.option(
    "--check-against",
    "evaluation",
    type=FOLDER,
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
@device_option
@click.option("--experiment", default="train", show_default=True, help="Experiment in MLflow.")
@track_option
@json_option
@stage_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    profile: str | None,
    data: tuple[Path, ...],
    licence: str | None,
    corpus_id: str | None,
    source: Path | None,
    objective: str,
    max_steps: int | None,
    max_seconds: float | None,
    out: Path | None,
    is_resumed: bool,
    evaluation: tuple[Path, ...],
    on_overlap: str,
    seed: int,
    num_workers: int | None,
    device: str,
    experiment: str,
    no_track: bool,
    as_json: bool,
    is_stage: bool,
) -> None:
    """Train a model on text files or on a corpus, or go on training one.

    Needs a GPU for the default profile; `--profile tiny` learns in a minute without. Ends at the
    limit of steps or seconds, or on Ctrl-C, and always writes the model.
    """
    if is_stage:
        _run_stage(ctx)
        return
    _check_options(ctx)
    paths = get_project(ctx)
    params = load_params(paths.params)
    from cog.evaluation.tracking import follow_run
    from cog.training.request import TrainRequest, train_with_tracking

    request = TrainRequest(
        profile=profile or params.train.profile,
        data=data,
        corpus_id=corpus_id,
        source=source,
        objective=objective,
        max_steps=max_steps,
        max_seconds=max_seconds,
        out=out,
        is_resumed=is_resumed,
        evaluation=evaluation,
        on_overlap=on_overlap,
        seed=seed,
        num_workers=num_workers,
        device=device,
        licence=licence,
    )
    follow = partial(follow_run, paths, None if no_track else experiment)
    report = train_with_tracking(paths, params, request, follow=follow)
    if report is not None:
        _write(report, as_json=as_json)


def _check_options(ctx: click.Context) -> None:
    if bool(ctx.params["data"]) == bool(ctx.params["corpus_id"]):
        raise click.UsageError("give either --data or --corpus")
    is_default = ctx.get_parameter_source("on_overlap") is ParameterSource.DEFAULT
    if not is_default and not ctx.params["evaluation"]:
        raise click.UsageError("--on-overlap goes with --check-against")


def _run_stage(ctx: click.Context) -> None:
    corpus_id = check_stage(ctx)
    paths = get_project_of(ctx, corpus_id)
    from cog.evaluation.tracking import follow_run
    from cog.training.request import train_on_corpus

    follow = partial(follow_run, paths, "train")
    train_on_corpus(paths, load_params(paths.params), corpus_id, follow=follow)


def _write(report: "TrainReport", *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(asdict(report), ensure_ascii=False))
        return
    click.echo(f"{report.folder} · {report.steps} steps · {report.num_tokens:,} tokens")
    for name, value in {**report.metrics, **report.validation}.items():
        click.echo(f"{name:36} {value:9.4f}")
    click.echo(f"cog: fingerprint {report.fingerprint[:12]}; {report.reason}", err=True)
