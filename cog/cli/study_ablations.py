"""``cog paper study ablations``: a corpus goes in, what each part of CoG is worth comes out."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cog.baselines.system import ABLATIONS, CHANGES, COG, VARIANTS
from cog.cli.main import get_project
from cog.cli.options import html_option, plot_option, with_options
from cog.cli.study_options import StudyOptions, make_plan
from cog.params import load_params

if TYPE_CHECKING:
    from cog.evaluation.compare import Row
    from cog.evaluation.studies import Study

NUM_SHOWN_PROMPTS = 20
COLUMNS = {
    "quality/mauve": "MAUVE",
    "repetition/diversity": "diversity",
    "perplexity/generated": "perplexity",
    "likelihood/per-word": "likelihood",
    "copies/tokens": "copied",
    "copies/tokens-per-step": "tokens a step",
    "latency/tokens-per-second": "tokens/s",
}


@click.command("ablations")
@click.option("--corpus", "corpus_id", required=True, metavar="ID", help="Corpus to copy from.")
@click.option("--prompts-of", "prompt_corpus_id", metavar="ID", help="Whose prompts to continue.")
@click.option(
    "--system",
    "systems",
    type=click.Choice([*VARIANTS, *ABLATIONS]),
    multiple=True,
    help="Only this ablation, repeatable [default: all].",
)
@plot_option
@html_option
@with_options(given=StudyOptions)
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    corpus_id: str,
    prompt_corpus_id: str | None,
    systems: tuple[str, ...],
    plot_path: Path | None,
    html_path: Path | None,
    given: StudyOptions,
) -> None:
    """Score CoG with one part changed at a time, on the same prompts.

    A score is marked + or - where it is better or worse than that of cog by more than chance.
    """
    paths = get_project(ctx)
    params = load_params(paths.params)
    from cog.evaluation.plot import check_plot_path
    from cog.evaluation.studies import run_study, study_ablations
    from cog.progress import show_progress
    from cog.registry import load_card

    if plot_path is not None:
        check_plot_path(plot_path)
    corpus_id = load_card(paths, corpus_id).id
    prompts = load_card(paths, prompt_corpus_id or corpus_id).id
    experiment = f"ablations {corpus_id}"
    kind = study_ablations(make_plan(params, given, corpus_id, prompts), systems)
    with show_progress(experiment, total=None, unit="texts") as progress:
        study = run_study(paths, params, kind, experiment=experiment, progress=progress)
    _write_files(study, plot_path, html_path)
    if given.as_json:
        click.echo(json.dumps(study.to_json(), ensure_ascii=False))
    else:
        _print(study)


def _write_files(study: "Study", plot_path: Path | None, html_path: Path | None) -> None:
    from cog.atomic import write_text_atomically
    from cog.evaluation.page import write_page
    from cog.evaluation.plot import plot_systems, save_plot

    (comparison,) = study.comparisons
    if plot_path is not None:
        save_plot(plot_systems(comparison), plot_path)
        click.echo(f"cog: wrote {plot_path}", err=True)
    if html_path is not None:
        page = write_page(comparison, [*study.results.values()], num_prompts=NUM_SHOWN_PROMPTS)
        write_text_atomically(html_path, page)
        click.echo(f"cog: wrote {html_path}", err=True)


def _print(study: "Study") -> None:
    from rich.console import Console
    from rich.table import Table

    (comparison,) = study.comparisons
    shown = {name: word for name, word in COLUMNS.items() if name in comparison.metrics}
    shown = shown or {name: name.rpartition("/")[2] for name in comparison.metrics}
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 200
    first = study.results[COG]
    title = f"{first.corpus}, {len(first.prompt_ids)} prompts of {first.prompt_corpus}"
    table = Table("system", "changed", *shown.values(), title=title)
    for place, name in enumerate(study.results):
        rows = [comparison.get_rows(metric)[place] for metric in shown]
        cells = [_format_cell(study, row) for row in rows]
        table.add_row(name, CHANGES.get(name, "as it is"), *cells)
    table.caption = "+, -: better or worse than cog by more than chance (Holm, p < 0.05)"
    console.print(table)
    for note in comparison.notes:
        click.echo(f"cog: {note}", err=True)
    click.echo(f"cog: logged to the experiment {study.experiment} (make ui)", err=True)


def _format_cell(study: "Study", row: "Row") -> str:
    from cog.evaluation.page import format_number

    pair = study.comparisons[0].find_pair(row.metric, COG, row.label)
    mark = ""
    if pair is not None and pair.better is not None:
        mark = " +" if pair.better == row.label else " -"
    return format_number(row.mean) + mark
