"""Options that several commands share, each declared once."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import wraps
from pathlib import Path
from typing import Any

import click

from cog.cli.numbers import FiniteRange, make_type

FOLDER = click.Path(path_type=Path)

device_option = click.option(
    "--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
track_option = click.option("--no-track", is_flag=True, help="Log nothing to MLflow.")


def _check_plot(_ctx: click.Context, _parameter: click.Parameter, path: Path | None) -> Path | None:
    if path is not None:
        from cog.evaluation.plot import check_plot_path

        check_plot_path(path)
    return path


plot_option = click.option(
    "--plot",
    "plot_path",
    type=click.Path(path_type=Path, dir_okay=False),
    callback=_check_plot,
    help="Write a picture.",
)
html_option = click.option(
    "--html",
    "html_path",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write a page with scores and texts.",
)
stage_option = click.option(
    "--stage",
    "is_stage",
    is_flag=True,
    help="As the pipeline does: set by params.yaml alone, with results in corpora/ID.",
)


def option(*names: str, **settings: Any) -> Any:  # noqa: ANN401
    """A field of a record that the command line fills in, as ``click.option`` is told."""
    return field(metadata={"option": (names, settings)})


def setting(record: type[Any], name: str, help: str, **more: Any) -> Any:  # noqa: A002, ANN401
    """A field for the setting of a record, with the range or the choices that it has there."""
    flag = f"--{name.replace('_', '-')}"
    return option(flag, type=make_type(record, name), help=help, **more)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopOptions:
    """How long something is trained, and whether it goes on."""

    max_steps: int | None = option(
        "--max-steps", type=click.IntRange(1), help="Number of optimiser steps."
    )
    max_seconds: float | None = option(
        "--max-seconds", type=FiniteRange(0, min_open=True), help="Seconds of training."
    )
    is_resumed: bool = option(
        "--resume", is_flag=True, help="Go on from the last checkpoint in --out."
    )
    device: str = option(
        "--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True
    )


def with_options(**records: type[Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command the options of records, by the parameter that takes a record filled in.

    Their fields are made by :func:`option`.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*words: Any, **given: Any) -> Any:  # noqa: ANN401
            for parameter, record in records.items():
                values = {each.name: given.pop(each.name) for each in fields(record)}
                given[parameter] = record(**values)
            return function(*words, **given)

        found = [each for record in records.values() for each in fields(record)]
        for each in reversed(found):  # as decorators that are stacked
            names, settings = each.metadata["option"]
            call = click.option(*names, each.name, **settings)(call)
        return call

    return decorate
