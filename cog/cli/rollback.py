"""``cog rollback``: what was active before the last switch becomes active again."""

import click

from cog.cli.main import get_project
from cog.cli.options import json_option
from cog.cli.output import tell
from cog.cli.switch import print_change
from cog.index.versions.activation import rollback_corpus


@click.command("rollback")
@json_option
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """Go back to what was active before the last switch."""
    print_change(rollback_corpus(get_project(ctx), say=tell), as_json=as_json)
