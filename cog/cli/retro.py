"""``cog retro``: a corpus with an index goes in, the adapter of the baseline RETRO comes out."""

import json
from pathlib import Path
from typing import Any

import click

from cog.cli.main import get_project
from cog.cli.numbers import FiniteRange
from cog.params import load_params


@click.group("retro")
def command() -> None:
    """Train RETRO, a baseline."""


@command.command("train")
@click.option(
    "--corpus", "corpus_id", required=True, metavar="ID", help="What it learns from and searches."
)
@click.option("--max-steps", type=click.IntRange(1), help="Number of optimiser steps.")
@click.option("--max-seconds", type=FiniteRange(0, min_open=True), help="Seconds of training.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder of the adapter [default: models/retro].",
)
@click.option("--resume", is_flag=True, help="Go on from the last checkpoint in --out.")
@click.option(
    "--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True
)
@click.option("--experiment", default="retro", show_default=True, help="Experiment in MLflow.")
@click.option("--no-track", is_flag=True, help="Log nothing to MLflow.")
@click.option("--json", "is_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def train(ctx: click.Context, /, **given: Any) -> None:  # noqa: ANN401
    """Fit RETRO's adapter to the model, on a corpus and its index.

    Ends at the limit of steps or seconds, that of params.yaml unless given, or on Ctrl-C, and
    always writes the adapter.
    """
    paths = get_project(ctx)
    params = load_params(paths.params)
    from cog.evaluation.retro_training import RetroRequest, train_retro
    from cog.registry import load_card

    request = RetroRequest(
        corpus_id=load_card(paths, given["corpus_id"]).id,
        max_steps=given["max_steps"],
        max_seconds=given["max_seconds"],
        out=given["out"],
        is_resumed=given["resume"],
        device=given["device"],
    )
    experiment = None if given["no_track"] else given["experiment"]
    report = train_retro(paths, params, request, experiment=experiment)
    if given["is_json"]:
        click.echo(json.dumps(report.to_json()))
        return
    click.echo(f"{report.folder} · {report.steps} steps · {report.num_tokens:,} tokens")
    for name, value in {**report.metrics, **report.validation}.items():
        click.echo(f"{name:36} {value:9.4f}")
    click.echo(f"{'gates':36} {', '.join(f'{gate:+.4f}' for gate in report.gates)}")
    click.echo(f"cog: ended by {report.reason}", err=True)
