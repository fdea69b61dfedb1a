"""``cog paper retro``: a corpus with an index goes in, an adapter for RETRO comes out."""

from dataclasses import asdict
from functools import partial
from pathlib import Path

import click

from cog.cli.main import open_project, open_stage
from cog.cli.options import (
    FOLDER,
    LoopOptions,
    json_option,
    stage_option,
    track_option,
    with_options,
)
from cog.cli.output import echo_json, echo_outcome, tell


@click.group("retro")
def command() -> None:
    """Train RETRO, a baseline."""


@command.command("train")
@click.option(
    "--corpus", "corpus_id", required=True, metavar="ID", help="What it learns from and searches."
)
@click.option(
    "--out",
    type=FOLDER,
    metavar="DIR",
    help="Folder of the adapter [default: models/retro].",
)
@with_options(loop=LoopOptions)
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
    out: Path | None,
    loop: LoopOptions,
    experiment: str,
    no_track: bool,
    as_json: bool,
    is_stage: bool,
) -> None:
    """Fit RETRO's adapter to the model, on a corpus and its index.

    Ends at the limit of steps or seconds, that of params.yaml unless given, or on Ctrl-C, and
    always writes the adapter.
    """
    paths, params = open_project(ctx, corpus_id)
    from cog.baselines.retro.job import train_retro, train_retro_on_corpus
    from cog.evaluation.tracking import follow_run

    if is_stage:
        follow = partial(follow_run, paths, "retro")
        train_retro_on_corpus(*open_stage(ctx), follow=follow)
        return
    report = train_retro(
        paths,
        params,
        corpus_id,
        out=out,
        **asdict(loop),
        follow=partial(follow_run, paths, None if no_track else experiment),
    )
    if as_json:
        echo_json(asdict(report))
        return
    echo_outcome(report)
    click.echo(f"{'gates':36} {', '.join(f'{gate:+.4f}' for gate in report.gates)}")
    tell(f"ended by {report.reason}")
