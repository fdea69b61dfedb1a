"""``cog status``: what is active, whether it is intact, what was tuned, and what to run if not."""

from dataclasses import asdict

import click

from cog.cli.main import get_project
from cog.cli.options import json_option
from cog.cli.output import echo_result
from cog.decoding.tuning import TuningState, load_tuning_state
from cog.index.versions.activation import Status, get_status
from cog.paths import ProjectPaths
from cog.records import Active
from cog.switch_log import is_same, load_history


@click.command("status")
@json_option
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """Say what is active, whether it is intact, and what was tuned; exit 1 if it is not intact."""
    paths = get_project(ctx)
    status = get_status(paths)
    tuning = _get_tuning(paths, status)
    content = status.to_json() | {"tuning": tuning.to_json() if tuning else None}
    echo_result(content, _format(paths, status, tuning), as_json=as_json)
    if status.is_broken:
        raise SystemExit(1)


def _get_tuning(paths: ProjectPaths, status: Status) -> TuningState | None:
    active = status.active
    if active is None or status.is_broken:
        return None
    place = paths.corpus(active.corpus)
    return load_tuning_state(place, index=active.index, model=active.model)


def _find_time(paths: ProjectPaths, active: Active) -> str:
    # a rollback brings back a record with the time of the switch that it was written by
    entries, _ = load_history(paths)
    is_logged = bool(entries) and is_same(entries[-1].after, asdict(active))
    return entries[-1].time if is_logged else active.switched_at


def _format(paths: ProjectPaths, status: Status, tuning: TuningState | None) -> str:
    lines = []
    if status.active is not None:
        lines.append(f"corpus   {status.active.corpus}")
        lines.append(f"index    {status.active.index}")
        folder = f"  {status.active.model_folder}" if status.active.model_folder else ""
        lines.append(f"model    {status.active.model}{folder}")
        lines.append(f"since    {_find_time(paths, status.active)}")
    elif not status.problem:
        lines.append("nothing is active")
    if status.counts:
        documents, chunks, units = status.counts.values()
        lines.append(f"intact   yes: {documents} documents, {chunks} chunks, {units} units")
    if tuning is not None:
        lines.append(f"tuned    {tuning}")
    if status.problem:
        lines.append(f"intact   no: {status.problem}")
    if status.run:
        lines.append(f"next     {status.run}")
    return "\n".join(lines)
