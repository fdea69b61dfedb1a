"""``cog paper study table``: a setting goes in, the paper's table with own figures comes out."""

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from cog.cli.evaluate import StudyOptions, make_plan, tell_notes
from cog.cli.main import open_project
from cog.cli.options import FiniteRange, with_options
from cog.cli.output import echo_json, print_table

if TYPE_CHECKING:
    from cog.evaluation.paper import PaperRow
    from cog.evaluation.studies import Study


SETTINGS = ("wikitext103", "law-mt", "en-wiki")  # of cog/evaluation/published.yaml


@click.command("table")
@click.option(
    "--setting", type=click.Choice(SETTINGS), required=True, help="Which table of the paper."
)
@click.option("--memory", "memory_id", metavar="ID[+ID]...", help="Corpus to copy from and search.")
@click.option("--prompts-of", "prompt_corpus_id", metavar="ID", help="Whose prompts to continue.")
@click.option(
    "--max-seconds",
    type=FiniteRange(0),
    metavar="S",
    help="Begin no row after so many seconds; those left are gaps.",
)
@with_options(given=StudyOptions)
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    setting: str,
    memory_id: str | None,
    prompt_corpus_id: str | None,
    max_seconds: float | None,
    given: StudyOptions,
) -> None:
    """Evaluate every row of a table of the paper, and show them beside the paper's figures.

    What cannot be evaluated is a gap with its reason and what to run. Corpora are those of the
    paper unless named.
    """
    paths, params = open_project(ctx)
    from cog.evaluation.paper import (
        DECODINGS,
        iter_rows,
        list_differences,
        load_published,
        make_plans,
    )
    from cog.evaluation.studies import run_plans
    from cog.index.versions.unions import JOIN, check_cards
    from cog.progress import show_progress
    from cog.registry import load_card

    chosen = load_published()["settings"][setting]
    memory = JOIN.join(check_cards(paths, memory_id or chosen["memory"]))
    prompts = load_card(paths, prompt_corpus_id or chosen["prompts"]).id
    decodings = DECODINGS if given.decoding is None else (given.decoding,)
    plan = make_plan(params, given, memory, prompts)
    experiment = f"paper {setting}"
    with show_progress(experiment, total=None, unit="texts") as progress:
        study = run_plans(
            paths,
            params,
            make_plans(chosen, plan, decodings),
            experiment=experiment,
            progress=progress,
            has_gaps=True,
            max_seconds=max_seconds,
        )
    tables = [[*iter_rows(table, study, decodings)] for table in chosen["tables"]]
    differences = list_differences(params, plan, chosen, study)
    if given.as_json:
        rows = [[asdict(row) for row in table] for table in tables]
        about = {"setting": setting, "experiment": experiment, "gaps": dict(study.gaps)}
        content = {**about, "tables": rows, "reference": chosen["reference"]}
        echo_json({**content, "differences": differences})
        return
    _write(study, tables, title=chosen["title"], differences=differences)


def _write(
    study: "Study",
    tables: "list[list[PaperRow]]",
    *,
    title: str,
    differences: list[str],
) -> None:
    for rows in tables:
        columns = list(rows[0].published)
        print_table(
            ("model", "decoding", *columns),
            [
                [row.label, row.decoding]
                + [_pair(row.measured[name], row.published[name]) for name in columns]
                for row in rows
            ],
            title=f"{title}: measured (the paper's)",
        )
    for name, gap in study.gaps.items():
        click.echo(f"gap: {name}: {gap}")
    click.echo("Differs from the paper:")
    for sentence in differences:
        click.echo(f"- {sentence}")
    tell_notes(study)


def _pair(mine: float | None, theirs: float) -> str:
    shown = "-" if mine is None else f"{mine:.3g}"
    return f"{shown} ({theirs:g})"
