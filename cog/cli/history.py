"""``cog history``: what was switched on when, and by whom."""

from dataclasses import asdict

import click

from cog.cli.main import get_project
from cog.cli.output import echo_json
from cog.index.versions.unions import shorten_digest
from cog.registry import load_active
from cog.switch_log import is_same, load_history


@click.command("history")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array, oldest first.")
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """Say who switched on what when, newest first, from a log that is never rewritten."""
    paths = get_project(ctx)
    entries, num_broken = load_history(paths)
    if num_broken:
        click.echo(f"{num_broken} lines of {paths.history.name} cannot be read", err=True)
    if as_json:
        echo_json([asdict(entry) for entry in entries])
        return
    active = load_active(paths)
    last = entries[-1].after if entries else None
    if not is_same(asdict(active) if active else None, last):
        click.echo("what is active now was not switched on by cog; see cog status", err=True)
    if not entries:
        click.echo("nothing was ever switched on; next: cog status")
    for entry in reversed(entries):
        before, after = (_name(each) for each in (entry.before, entry.after))
        click.echo(f"{entry.time}  {entry.who}\n  {before} -> {after}\n  {entry.command}")


def _name(active: dict[str, str] | None) -> str:
    if not active:
        return "nothing"
    return f"{active['corpus']} (index {shorten_digest(active['index'], 16)})"
