"""Options that several commands share, each declared once."""

from pathlib import Path

import click

from cog.cli.numbers import FiniteRange

FOLDER = click.Path(path_type=Path)

device_option = click.option(
    "--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
track_option = click.option("--no-track", is_flag=True, help="Log nothing to MLflow.")
resume_option = click.option(
    "--resume", "is_resumed", is_flag=True, help="Go on from the last checkpoint in --out."
)
steps_option = click.option(
    "--max-steps", type=click.IntRange(1), help="Number of optimiser steps."
)
seconds_option = click.option(
    "--max-seconds", type=FiniteRange(0, min_open=True), help="Seconds of training."
)
stage_option = click.option(
    "--stage",
    "is_stage",
    is_flag=True,
    help="As the pipeline does: set by params.yaml alone, with results in corpora/ID.",
)
