"""``cog upgrade``: a project of an older cog goes in, one of the installed cog comes out."""

import click

from cog.cli.main import find_root
from cog.template import upgrade_project


@click.command("upgrade")
@click.option("--check", "is_trial", is_flag=True, help="Write nothing; exit 1 if it would.")
@click.pass_context
def command(ctx: click.Context, is_trial: bool) -> None:
    """Renew the files of a project that an older version made; what you edited stays."""
    plan = upgrade_project(find_root(ctx), is_trial=is_trial)
    for line in plan.describe():
        click.echo(line)
    if not plan.describe() and plan.is_empty:
        click.echo("nothing to do: the project is of this version", err=True)
    elif is_trial:
        raise SystemExit(1)
