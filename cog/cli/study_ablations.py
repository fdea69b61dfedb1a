"""``cog paper study ablations``: a corpus goes in, what each part of CoG is worth comes out."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cog.baselines.system import ABLATIONS, CHANGES, COG, VARIANTS
from cog.cli.main import open_project
from cog.cli.options import html_option, plot_option, with_options
from cog.cli.output import echo_json, make_console, tell, write_picture, write_texts
from cog.cli.study_options import StudyOptions, make_plan

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
    paths, params = open_project(ctx)
    from cog.evaluation.plot import plot_systems
    from cog.evaluation.studies import run_study, study_ablations
    from cog.progress import show_progress
    from cog.registry import load_card

    corpus_id = load_card(paths, corpus_id).id
    prompts = load_card(paths, prompt_corpus_id or corpus_id).id
    experiment = f"ablations {corpus_id}"
    kind = study_ablations(make_plan(params, given, corpus_id, prompts), systems)
    with show_progress(experiment, total=None, unit="texts") as progress:
        study = run_study(paths, params, kind, experiment=experiment, progress=progress)
    (comparison,) = study.comparisons
    if plot_path is not None:
        write_picture(plot_systems(comparison), plot_path)
    if html_path is not None:
        write_texts(comparison, study.results.values(), html_path, num_prompts=NUM_SHOWN_PROMPTS)
    if given.as_json:
        echo_json(study.to_json())
    else:
        _print(study)


def _print(study: "Study") -> None:
    from rich.table import Table

    (comparison,) = study.comparisons
    shown = {name: word for name, word in COLUMNS.items() if name in comparison.metrics}
    shown = shown or {name: name.rpartition("/")[2] for name in comparison.metrics}
    first = study.results[COG]
    title = f"{first.corpus}, {len(first.prompt_ids)} prompts of {first.prompt_corpus}"
    table = Table("system", "changed", *shown.values(), title=title)
    for place, name in enumerate(study.results):
        rows = [comparison.get_rows(metric)[place] for metric in shown]
        cells = [_format_cell(study, row) for row in rows]
        table.add_row(name, CHANGES.get(name, "as it is"), *cells)
    table.caption = "+, -: better or worse than cog by more than chance (Holm, p < 0.05)"
    make_console().print(table)
    for note in comparison.notes:
        tell(note)
    tell(f"logged to the experiment {study.experiment} (make ui)")


def _format_cell(study: "Study", row: "Row") -> str:
    from cog.evaluation.page import format_number

    pair = study.comparisons[0].find_pair(row.metric, COG, row.label)
    mark = ""
    if pair is not None and pair.better is not None:
        mark = " +" if pair.better == row.label else " -"
    return format_number(row.mean) + mark
