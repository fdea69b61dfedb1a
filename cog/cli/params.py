"""``cog params``: params.yaml goes in, the settings that hold come out, with what they mean."""

from dataclasses import asdict

import click

from cog.cli.main import open_project
from cog.cli.output import echo_json
from cog.settings import format_settings, list_settings


@click.command("params")
@click.option("--all", "is_all", is_flag=True, help="Show what has its default, too.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per setting.")
@click.pass_context
def command(ctx: click.Context, is_all: bool, as_json: bool) -> None:
    """Show the settings that differ from their defaults, or all, with their meaning."""
    _, params = open_project(ctx)
    settings = list_settings(params)
    chosen = [each for each in settings if is_all or each.value != each.default]
    if as_json:
        echo_json([asdict(each) for each in chosen], indent=2)
    elif chosen:
        click.echo(format_settings(chosen).strip("\n"))
    else:
        click.echo("every setting has its default: cog params --all shows them", err=True)
