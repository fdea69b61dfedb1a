"""``cog paper study blind``: evaluations go in, sheets come out; filled sheets give a verdict."""

from pathlib import Path

import click

from cog.cli.main import get_project
from cog.cli.options import json_option
from cog.cli.output import echo_json, print_table


class ExportByDefault(click.Group):
    """A group that exports if options come where a command is expected."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put ``export`` before options that are not the group's own."""
        is_option = bool(args) and args[0].startswith("-")
        if is_option and args[0] not in ctx.help_option_names:
            args = ["export", *args]
        return super().parse_args(ctx, args)


@click.group("blind", cls=ExportByDefault)
def command() -> None:
    """Let people compare two systems without knowing which is which.

    Options without a command are those of export.
    """


@command.command("export")
@click.option(
    "--systems",
    nargs=2,
    required=True,
    metavar="A B",
    help="Two corpora, or corpus:system, evaluated on the same prompts.",
)
@click.option(
    "--prompts",
    "num_prompts",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    metavar="N",
    help="Number of cases.",
)
@click.option("--prompts-of", "prompt_corpus", metavar="ID", help="Whose prompts they continued.")
@click.option("--protocol", metavar="NAME|DIGEST", help="Only evaluations of this protocol.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the order.")
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for sheet.csv and key.json [default: one below studies/, which cog serve shows].",
)
@click.option("--force", is_flag=True, help="Write over a study that is there.")
@json_option
@click.pass_context
def export(
    ctx: click.Context,
    /,
    *,
    systems: tuple[str, str],
    num_prompts: int,
    prompt_corpus: str | None,
    protocol: str | None,
    seed: int,
    output: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """Write a sheet for graders and the key that they do not get.

    `cog serve` shows the studies below `studies/` on a page, where people judge them.
    """
    from cog.evaluation.blind import make_study
    from cog.evaluation.choose import choose_named_sides
    from cog.evaluation.study_folder import CSV_NAME, KEY_NAME, save_study

    first, second = choose_named_sides(
        get_project(ctx), systems, prompt_corpus=prompt_corpus, protocol=protocol
    )
    items, key = make_study(first, second, systems=systems, num_prompts=num_prompts, seed=seed)
    folder = output or get_project(ctx).studies / key.study
    save_study(folder, items, key, is_forced=force)
    if as_json:
        files = {name: str(folder / name) for name in (CSV_NAME, KEY_NAME)}
        echo_json({"study": key.study, "num_cases": len(items), "files": files})
        return
    how = f"give {CSV_NAME} to graders" if output else "cog serve shows it, with links for graders"
    click.echo(f"{len(items)} cases in {folder}: {how}")
    click.echo(f"keep {KEY_NAME}: it says which text is whose")


@command.command("import")
@click.argument(
    "sheets",
    nargs=-1,
    required=True,
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="SHEET.csv...",
)
@click.option(
    "--key",
    "key_path",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="The key.json of the export.",
)
@json_option
def import_(sheets: tuple[Path, ...], key_path: Path, as_json: bool) -> None:
    """Read filled sheets, one per grader, and say which system is preferred."""
    from cog.evaluation.blind import judge, parse_key, read_sheet
    from cog.evaluation.study_folder import read_text

    key = parse_key(read_text(key_path), where=str(key_path))
    paths = list(dict.fromkeys(path.resolve() for path in sheets))
    answers = {str(path): read_sheet(read_text(path), where=path.name, key=key) for path in paths}
    verdicts = judge(answers, key)
    if as_json:
        content = {
            "systems": list(key.systems),
            "study": key.study,
            "protocol": key.protocol,
            "questions": [verdict.to_json() for verdict in verdicts],
        }
        echo_json(content)
        return
    names = ("question", "better", "no preference", "worse", "p (sign test)", "alpha")
    rows = []
    for verdict in verdicts:
        counts = (verdict.num_better, verdict.num_neither, verdict.num_worse)
        total = max(1, verdict.num_cases)
        shares = [f"{count} ({100 * count / total:.0f} %)" for count in counts]
        agreement = "" if verdict.agreement is None else f"{verdict.agreement:.2f}"
        told = (f"{verdict.p_value:.3g}", agreement, str(verdict.num_cases))
        rows.append([verdict.question, *shares, *told, str(verdict.num_graders)])
    click.echo(f"{key.systems[0]} against {key.systems[1]}")
    print_table((*names, "cases", "graders"), rows)
