"""``cog retro``: a corpus with an index goes in, the adapter of the baseline RETRO comes out."""

import json
from pathlib import Path

import click

from cog.cli.main import get_project
from cog.params import load_params


@click.group("retro")
def command() -> None:
    """Train RETRO, a baseline."""


@command.command("train")
@click.option(
    "--corpus", "corpus_id", required=True, metavar="ID", help="What it learns from and searches."
)
@click.option("--max-steps", type=click.IntRange(1), help="Number of optimiser steps.")
@click.option("--max-seconds", type=click.FloatRange(0, min_open=True), help="Seconds of training.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder of the adapter [default: models/retro].",
)
@click.option(
    "--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True
)
@click.option("--json", "is_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def train(
    ctx: click.Context,
    /,
    corpus_id: str,
    max_steps: int | None,
    max_seconds: float | None,
    out: Path | None,
    device: str,
    *,
    is_json: bool,
) -> None:
    """Fit RETRO's adapter to the model, on a corpus and its index.

    Ends at the limit of steps or seconds, 2,000 steps unless given, or on Ctrl-C, and then writes
    the adapter.
    """
    paths = get_project(ctx)
    params = load_params(paths.params)
    from cog.baselines.retro.job import MAX_STEPS, SETTINGS, train_adapter
    from cog.progress import show_progress
    from cog.registry import load_card
    from cog.training.schedule import Budget

    corpus_id = load_card(paths, corpus_id).id
    if max_steps is None and max_seconds is None:
        max_steps = MAX_STEPS
    total = max_steps if max_steps is not None else int(max_seconds or 0)
    unit = "steps" if max_steps is not None else "seconds"
    with show_progress(f"retro {corpus_id}", total=total, unit=unit) as progress:
        report = train_adapter(
            paths,
            params,
            corpus_id,
            out=out,
            budget=Budget(max_steps, max_seconds),
            settings=SETTINGS,
            progress=progress,
            device=device,
        )
    if is_json:
        click.echo(json.dumps(report.to_json()))
        return
    outcome = report.outcome
    click.echo(f"{report.folder} · {outcome.steps} steps · {outcome.num_tokens:,} tokens")
    click.echo(f"loss      {outcome.first_loss:.4f} at first, {outcome.last_loss:.4f} at last")
    click.echo(f"gates     {', '.join(f'{gate:+.4f}' for gate in outcome.gates)}")
    click.echo(f"cog: ended by {outcome.reason}", err=True)
