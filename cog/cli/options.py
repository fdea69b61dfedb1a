"""Options that several commands share, each declared once."""

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import wraps
from pathlib import Path
from typing import Any

import click

from cog.reading import OneOf, Range, get_rule
from cog.records import PRECISIONS


class FiniteRange(click.FloatRange):
    """A range of numbers without infinity and without what is no number."""

    def convert(
        self,
        value: Any,  # noqa: ANN401
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> float:
        """Read a number; what is out of range, or not finite, is wrong usage."""
        found = float(super().convert(value, param, ctx))
        if not math.isfinite(found):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return found


def make_type(record: type[Any], name: str) -> click.ParamType[Any]:
    """What an option takes that sets a number or a choice of a record, as the record says."""
    rule = get_rule(record, name)
    if isinstance(rule, OneOf):
        return click.Choice(rule.choices)
    ends = rule if isinstance(rule, Range) else Range()
    low, high = max(ends.at_least, ends.above), min(ends.at_most, ends.below)
    is_whole = isinstance(record.__dataclass_fields__[name].default, int)
    kind: Any = click.IntRange if is_whole else FiniteRange
    made: click.ParamType[Any] = kind(
        low if math.isfinite(low) else None,
        high if math.isfinite(high) else None,
        min_open=math.isfinite(ends.above),
        max_open=math.isfinite(ends.below),
    )
    return made


FOLDER = click.Path(path_type=Path)

DEVICE: dict[str, Any] = {
    "type": click.Choice(["auto", "cpu", "cuda"]),
    "default": "auto",
    "show_default": True,
    "help": "Where models run.",
}
device_option = click.option("--device", **DEVICE)
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
PRECISION: dict[str, Any] = {
    "type": click.Choice(PRECISIONS),
    "help": "Of the prefix encoder's matrices [default: auto, what is fast here].",
}
precision_option = click.option("--precision", **PRECISION)
stage_option = click.option(
    "--stage",
    "is_stage",
    is_flag=True,
    help="As the pipeline does: set by params.yaml alone, with results in corpora/ID.",
)


Flag = tuple[tuple[str, ...], dict[str, Any]]  # names of an option, and what click is told of it


def flag(*names: str, **settings: Any) -> Flag:  # noqa: ANN401
    """An option of a table, as ``click.option`` is told; without names it has its field's.

    ``of`` is a record in which a field of this name says what values there are.
    """
    return names, settings


def option(*names: str, **settings: Any) -> Any:  # noqa: ANN401
    """A field of a record that the command line fills in, as ``click.option`` is told."""
    return field(metadata={"option": flag(*names, **settings)})


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceOptions:
    """Where models run."""

    device: str = option("--device", **DEVICE)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopOptions(DeviceOptions):
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


def with_record(
    parameter: str, record: type[Any], flags: Mapping[str, Flag]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command options by field of a record, and the record filled in as a parameter.

    Where nothing else is said, the default is the field's own. Fields without an option keep it.
    """
    known = {each.name: each.default for each in fields(record)}

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*words: Any, **given: Any) -> Any:  # noqa: ANN401
            values = {name: given.pop(name) for name in flags}
            return function(*words, **given | {parameter: record(**values)})

        for name in reversed(list(flags)):  # as decorators that are stacked
            names, settings = flags[name][0], dict(flags[name][1])
            names = names or (f"--{name.replace('_', '-')}",)
            if "of" in settings:
                settings["type"] = make_type(settings.pop("of"), name)
            default = known[name]
            if default is not MISSING:
                is_told = not isinstance(default, bool) and default not in (None, "", ())
                settings = {"default": default, "show_default": is_told} | settings
            call = click.option(*names, name, **settings)(call)
        return call

    return decorate


def list_flags(record: type[Any]) -> dict[str, Flag]:
    """The options of a record whose fields are made by :func:`option`, by field."""
    return {each.name: each.metadata["option"] for each in fields(record)}


def with_options(**records: type[Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command the options of records, by the parameter that takes a record filled in."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for parameter, record in reversed(records.items()):
            function = with_record(parameter, record, list_flags(record))(function)
        return function

    return decorate
