"""``cog study paper``: a setting goes in, the paper's table comes out with figures of one's own."""

import json
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import click

from cog.cli.evaluate import make_plan
from cog.cli.main import get_project
from cog.cli.numbers import FiniteRange
from cog.cli.study_runs import with_study_options
from cog.evaluation.paper import (
    DECODINGS,
    LATENCY,
    PERPLEXITY,
    PHRASE_LENGTHS,
    REFERENCE_PERPLEXITY,
    SETTINGS,
)
from cog.params import load_params

if TYPE_CHECKING:
    from rich.table import Table

    from cog.evaluation.paper_study import PaperStudy


@click.command("paper")
@click.option(
    "--setting", type=click.Choice(list(SETTINGS)), required=True, help="Which table of the paper."
)
@click.option("--memory", "memory_id", metavar="ID[+ID]...", help="Corpus to copy from and search.")
@click.option("--prompts-of", "prompt_corpus_id", metavar="ID", help="Whose prompts to continue.")
@click.option(
    "--max-seconds",
    type=FiniteRange(0),
    metavar="S",
    help="Begin no row after so many seconds; those left are gaps.",
)
@with_study_options
@click.pass_context
def paper(
    ctx: click.Context,
    /,
    setting: str,
    memory_id: str | None,
    prompt_corpus_id: str | None,
    **given: Any,  # noqa: ANN401
) -> None:
    """Evaluate every row of a table of the paper, and show them beside the paper's figures.

    What cannot be evaluated is a gap with its reason and what to run. Corpora are those of the
    paper unless named.
    """
    paths = get_project(ctx)
    params = load_params(paths.params)
    from cog.evaluation.paper_study import study_paper
    from cog.index.versions.unions import JOIN, check_cards
    from cog.progress import show_progress
    from cog.registry import load_card

    chosen = SETTINGS[setting]
    memory = JOIN.join(check_cards(paths, memory_id or chosen.memory))
    prompts = load_card(paths, prompt_corpus_id or chosen.prompts).id
    decodings = DECODINGS if given["decoding"] is None else (given["decoding"],)
    study = study_paper(
        paths,
        params,
        make_plan(params, {**given, "system": "cog"}, memory, prompts),
        setting=chosen,
        decodings=decodings,
        max_seconds=given["max_seconds"],
        open_progress=show_progress,
    )
    if given["is_json"]:
        click.echo(json.dumps(study.to_json(), ensure_ascii=False))
        return
    _write(study)


def _write(study: "PaperStudy") -> None:
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 200
    console.print(_make_scores(study))
    for table in (_make_lengths(study), _make_perplexities(study)):
        if table.row_count:
            console.print(table)
    for each in study.rows:
        if each.gap:
            click.echo(f"gap: {each.row.label}, {each.row.decoding}: {each.gap}")
    click.echo("Differs from the paper:")
    for sentence in study.differences:
        click.echo(f"- {sentence}")
    click.echo(f"cog: logged to the experiment {study.experiment} (make ui)", err=True)


def _make_scores(study: "PaperStudy") -> "Table":
    from rich.table import Table

    from cog.evaluation.paper_study import published

    columns = study.setting.columns
    title = f"{study.setting.title}: measured (the paper's)"
    table = Table("model", "decoding", *map(_name_column, columns), title=title)
    for each in study.rows:
        theirs = published(each.row, study.setting)
        cells = [_pair(each.get(column), theirs.get(column)) for column in columns]
        table.add_row(each.row.label, each.row.decoding, *cells)
    return table


def _make_lengths(study: "PaperStudy") -> "Table":
    from rich.table import Table

    title = "length of what a step appends, in tokens, as shares of the steps of CoG"
    table = Table("method", "uni-gram", *(f"{n}-gram" for n in range(2, 7)), title=title)
    for each in study.rows:
        if (found := each.get_phrase_lengths()) is None:
            continue
        theirs = PHRASE_LENGTHS[each.row.decoding] if study.setting.has_appendix else ()
        pairs = zip_longest(found, theirs)
        table.add_row(each.row.decoding, *(_pair(*pair, digits=3) for pair in pairs))
    return table


def _make_perplexities(study: "PaperStudy") -> "Table":
    from rich.table import Table

    from cog.evaluation.paper_study import published

    cells: dict[str, dict[str, str]] = {}
    for each in study.rows:
        theirs = published(each.row, study.setting).get(PERPLEXITY)
        cells.setdefault(each.row.label, {})[each.row.decoding] = _pair(
            each.get(PERPLEXITY), theirs
        )
    decodings = list(dict.fromkeys(each.row.decoding for each in study.rows))
    table = Table("model", *decodings, title="perplexity of generated text")
    if all(each.get(PERPLEXITY) is None for each in study.rows):
        return table
    for label, by_decoding in cells.items():
        table.add_row(label, *(by_decoding[decoding] for decoding in decodings))
    theirs = REFERENCE_PERPLEXITY if study.setting.has_appendix else None
    table.add_row("what really follows", _pair(study.reference_perplexity, theirs))
    return table


def _name_column(column: str) -> str:
    return {"mauve": "MAUVE", LATENCY: "latency (s)"}.get(column, column.capitalize())


def _pair(mine: float | None, theirs: float | None, digits: int = 2) -> str:
    shown = "-" if mine is None else f"{mine:.{digits}f}"
    return shown if theirs is None else f"{shown} ({theirs:.{digits}f})"
