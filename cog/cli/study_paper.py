"""``cog study paper``: a setting goes in, the paper's table comes out with figures of one's own."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from cog.cli.evaluate import make_plan
from cog.cli.main import get_project
from cog.cli.study_runs import with_study_options
from cog.evaluation.paper import DECODINGS, PERPLEXITY, PHRASE_LENGTHS, SETTINGS
from cog.params import load_params

if TYPE_CHECKING:
    from cog.evaluation.paper_study import PaperStudy, StudiedRow


@click.command("paper")
@click.option(
    "--setting", type=click.Choice(list(SETTINGS)), required=True, help="Which table of the paper."
)
@click.option("--memory", "memory_id", metavar="ID", help="Corpus to copy from and search.")
@click.option("--prompts-of", "prompt_corpus_id", metavar="ID", help="Whose prompts to continue.")
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

    What cannot be evaluated is a gap with its reason. Corpora are those of the paper unless named.
    """
    paths = get_project(ctx)
    params = load_params(paths.params)
    from cog.evaluation.paper_study import study_paper
    from cog.progress import show_progress
    from cog.registry import load_card

    chosen = SETTINGS[setting]
    memory = load_card(paths, memory_id or chosen.memory).id
    prompts = load_card(paths, prompt_corpus_id or chosen.prompts).id
    decodings = DECODINGS if given["decoding"] is None else (given["decoding"],)
    study = study_paper(
        paths,
        params,
        make_plan(params, {**given, "system": "cog"}, memory, prompts),
        setting=chosen,
        decodings=decodings,
        open_progress=show_progress,
    )
    if given["is_json"]:
        click.echo(json.dumps(study.to_json(), ensure_ascii=False))
        return
    _write(study)


def _write(study: "PaperStudy") -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    title = f"{study.setting.title}: measured (the paper's)"
    table = Table("system", "decoding", *study.setting.columns, PERPLEXITY, title=title)
    for each in study.rows:
        table.add_row(each.row.label, each.row.decoding, *_show(each, study.setting.columns))
    console.print(table)
    lengths = Table("", *map(str, range(1, 7)), title="copied phrases by number of words")
    for each in study.rows:
        if (found := each.get_phrase_lengths()) is not None:
            lengths.add_row(each.row.decoding, *(f"{share:.3f}" for share in found))
            shares = PHRASE_LENGTHS[each.row.decoding]
            lengths.add_row("the paper's", *(f"{share:.3f}" for share in shares))
    if lengths.row_count:
        console.print(lengths)
    for each in study.rows:
        if each.gap:
            click.echo(f"gap: {each.row.label}, {each.row.decoding}: {each.gap}")
    click.echo("Differs from the paper:")
    for sentence in study.differences:
        click.echo(f"- {sentence}")
    click.echo(f"cog: logged to the experiment {study.experiment} (make ui)", err=True)


def _show(each: "StudiedRow", columns: Sequence[str]) -> list[str]:
    from cog.evaluation.paper_study import published

    theirs = published(each.row)
    cells = []
    for column in (*columns, PERPLEXITY):
        mine = each.get(column)
        shown = "-" if mine is None else f"{mine:.2f}"
        cells.append(f"{shown} ({theirs[column]:.2f})" if column in theirs else shown)
    return cells
