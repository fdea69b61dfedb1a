"""``cog params``: params.yaml goes in, the settings that hold come out, with what they mean."""

import json
from dataclasses import asdict

import click

from cog.cli.main import get_project
from cog.params import load_params
from cog.settings import format_settings, list_settings


@click.command("params")
@click.option("--all", "is_all", is_flag=True, help="Show what has its default, too.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per setting.")
@click.pass_context
def command(ctx: click.Context, is_all: bool, as_json: bool) -> None:
    """Show the settings that differ from their defaults, or all, with their meaning."""
    settings = list_settings(load_params(get_project(ctx).params))
    chosen = [each for each in settings if is_all or each.value != each.default]
    if as_json:
        click.echo(json.dumps([asdict(each) for each in chosen], ensure_ascii=False, indent=2))
    elif chosen:
        click.echo(format_settings(chosen).strip("\n"))
    else:
        click.echo("every setting has its default: cog params --all shows them", err=True)
