"""``cog status``: what is active, whether it is intact, and what to run if not."""

import json

import click

from cog.cli.main import get_project
from cog.index.activation import Status, get_status


@click.command("status")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """Say what is active, and whether it is intact; exit 1 if it is not."""
    status = get_status(get_project(ctx))
    click.echo(json.dumps(status.to_json(), ensure_ascii=False) if as_json else _format(status))
    if status.is_broken:
        raise SystemExit(1)


def _format(status: Status) -> str:
    lines = []
    if status.active is not None:
        lines.append(f"corpus   {status.active.corpus}")
        lines.append(f"index    {status.active.index}")
        folder = f"  {status.active.model_folder}" if status.active.model_folder else ""
        lines.append(f"model    {status.active.model}{folder}")
        lines.append(f"since    {status.active.switched_at}")
    elif not status.problem:
        lines.append("nothing is active")
    if status.manifest is not None:
        manifest = status.manifest
        counts = f"{manifest.documents.num_indexed} documents, {manifest.num_chunks} chunks"
        lines.append(f"intact   yes: {counts}, {manifest.num_words} words")
    if status.problem:
        lines.append(f"intact   no: {status.problem}")
    if status.run:
        lines.append(f"next     {status.run}")
    return "\n".join(lines)
