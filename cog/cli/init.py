"""``cog init``: a folder goes in, a project comes out."""

from pathlib import Path

import click

from cog.template import init_project


@click.command("init")
@click.argument(
    "folder", metavar="[DIR]", type=click.Path(path_type=Path, file_okay=False), default=Path()
)
@click.option(
    "--workflow",
    "workflows",
    multiple=True,
    metavar="NAME",
    help="Also a pipeline beside the main one: baselines, scale-out or training; repeatable.",
)
@click.option("--check", "is_trial", is_flag=True, help="Write nothing; exit 1 if it would.")
def command(folder: Path, workflows: tuple[str, ...], is_trial: bool) -> None:
    """Make a project of a folder, of the current one unless named; again, nothing changes.

    Nothing that is there is overwritten, and nothing is committed.
    """
    plan = init_project(folder, workflows=workflows, is_trial=is_trial)
    for line in plan.describe():
        click.echo(line)
    if plan.is_empty:
        click.echo(f"nothing to do: {folder} is a project of this version", err=True)
    elif is_trial:
        click.echo("these files would be written", err=True)
        raise SystemExit(1)
    else:
        step = "" if folder.resolve() == Path.cwd() else f"cd {folder} && "
        first = "take over what the files with .new have, then " if plan.has_new else ""
        click.echo(f"next: {first}{step}cog demo, or cog corpus add ID DIR_OR_FILE", err=True)
