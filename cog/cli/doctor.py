"""``cog doctor``: a project goes in, what is wrong comes out, each with what mends it."""

from dataclasses import asdict

import click

from cog.cli.main import get_project
from cog.cli.options import json_option
from cog.cli.output import echo_json


@click.command("doctor")
@click.argument("corpus_id", metavar="[ID]", required=False)
@click.option("--quick", "is_quick", is_flag=True, help="Leave the rows of indexes unread.")
@json_option
@click.pass_context
def command(ctx: click.Context, corpus_id: str | None, is_quick: bool, as_json: bool) -> None:
    """Check everything, change nothing; exit 1 if something is wrong."""
    from cog.doctor.project import examine
    from cog.progress import show_progress

    paths = get_project(ctx)
    with show_progress("check", total=None, unit="words") as progress:
        findings = examine(paths, corpus_id, progress=progress, is_quick=is_quick)
    if as_json:
        echo_json({"is_well": not findings, "findings": [asdict(each) for each in findings]})
    for each in [] if as_json else findings:
        click.echo(f"{each.kind}  {each.about}: {each.problem}\n    run: {each.run}")
    if not findings and not as_json:
        click.echo("nothing is wrong")
    if findings:
        raise SystemExit(1)
