"""``cog paper retro``: a corpus with an index goes in, an adapter for RETRO comes out."""

import json
from dataclasses import asdict
from functools import partial
from pathlib import Path

import click

from cog.cli.main import check_stage, get_project_of
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


@click.group("retro")
def command() -> None:
    """Train RETRO, a baseline."""


@command.command("train")
@click.option(
    "--corpus", "corpus_id", required=True, metavar="ID", help="What it learns from and searches."
)
@steps_option
@seconds_option
@click.option(
    "--out",
    type=FOLDER,
    metavar="DIR",
    help="Folder of the adapter [default: models/retro].",
)
@resume_option
@device_option
@click.option("--experiment", default="retro", show_default=True, help="Experiment in MLflow.")
@track_option
@json_option
@stage_option
@click.pass_context
def train(
    ctx: click.Context,
    /,
    *,
    corpus_id: str,
    max_steps: int | None,
    max_seconds: float | None,
    out: Path | None,
    is_resumed: bool,
    device: str,
    experiment: str,
    no_track: bool,
    as_json: bool,
    is_stage: bool,
) -> None:
    """Fit RETRO's adapter to the model, on a corpus and its index.

    Ends at the limit of steps or seconds, that of params.yaml unless given, or on Ctrl-C, and
    always writes the adapter.
    """
    paths = get_project_of(ctx, corpus_id)
    params = load_params(paths.params)
    from cog.baselines.retro.training import train_retro, train_retro_on_corpus
    from cog.evaluation.tracking import follow_run

    if is_stage:
        follow = partial(follow_run, paths, "retro")
        train_retro_on_corpus(paths, params, check_stage(ctx), follow=follow)
        return
    report = train_retro(
        paths,
        params,
        corpus_id,
        max_steps=max_steps,
        max_seconds=max_seconds,
        out=out,
        is_resumed=is_resumed,
        device=device,
        follow=partial(follow_run, paths, None if no_track else experiment),
    )
    if as_json:
        click.echo(json.dumps(asdict(report)))
        return
    click.echo(f"{report.folder} · {report.steps} steps · {report.num_tokens:,} tokens")
    for name, value in {**report.metrics, **report.validation}.items():
        click.echo(f"{name:36} {value:9.4f}")
    click.echo(f"{'gates':36} {', '.join(f'{gate:+.4f}' for gate in report.gates)}")
    click.echo(f"cog: ended by {report.reason}", err=True)
