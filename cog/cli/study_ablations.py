"""``cog study ablations``: a corpus goes in, what each part of CoG is worth comes out."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cog.baselines.ablations.catalogue import ABLATIONS
from cog.cli.evaluate import make_plan
from cog.cli.main import get_project
from cog.cli.study_runs import with_study_options
from cog.params import load_params

if TYPE_CHECKING:
    from cog.evaluation.ablation_study import AblationStudy
    from cog.evaluation.records import EvaluationResult

NUM_SHOWN_PROMPTS = 20
SHORT_NAMES = {
    "perplexity/generated": "perplexity",
    "perplexity/reference": "of references",
    "copies/tokens": "copied",
}


@click.command("ablations")
@click.option("--corpus", "corpus_id", required=True, metavar="ID", help="Corpus to copy from.")
@click.option("--prompts-of", "prompt_corpus_id", metavar="ID", help="Whose prompts to continue.")
@click.option(
    "--system",
    "systems",
    type=click.Choice(list(ABLATIONS)),
    multiple=True,
    help="Only this ablation, repeatable [default: all].",
)
@click.option(
    "--plot", "plot_path", type=click.Path(path_type=Path, dir_okay=False), help="Write a picture."
)
@click.option(
    "--html",
    "html_path",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write a page with scores and texts.",
)
@with_study_options
@click.pass_context
def ablations(
    ctx: click.Context,
    /,
    corpus_id: str,
    prompt_corpus_id: str | None,
    systems: tuple[str, ...],
    **given: Any,  # noqa: ANN401
) -> None:
    """Score CoG with one part changed at a time, on the same prompts.

    A score is marked + or - where it is better or worse than that of cog by more than chance.
    """
    paths = get_project(ctx)
    params = load_params(paths.params)
    from cog.evaluation.ablation_study import study_ablations
    from cog.evaluation.plot import check_plot_path
    from cog.progress import show_progress
    from cog.registry import load_card

    if given["plot_path"] is not None:
        check_plot_path(given["plot_path"])
    corpus_id = load_card(paths, corpus_id).id
    prompts = load_card(paths, prompt_corpus_id or corpus_id).id
    study = study_ablations(
        paths,
        params,
        make_plan(params, {**given, "system": "cog"}, corpus_id, prompts),
        systems=systems,
        open_progress=show_progress,
    )
    _write_files(study, given["plot_path"], given["html_path"])
    if given["is_json"]:
        click.echo(json.dumps(study.to_json(), ensure_ascii=False))
    else:
        _print(study)


def _write_files(study: "AblationStudy", plot_path: Path | None, html_path: Path | None) -> None:
    from cog.atomic import write_text_atomically
    from cog.evaluation.html import write_page
    from cog.evaluation.plot import plot_systems, save_plot

    if plot_path is not None:
        save_plot(plot_systems(study.comparison), plot_path)
        click.echo(f"cog: wrote {plot_path}", err=True)
    if html_path is not None:
        page = write_page(study.comparison, study.results, num_prompts=NUM_SHOWN_PROMPTS)
        write_text_atomically(html_path, page)
        click.echo(f"cog: wrote {html_path}", err=True)


def _print(study: "AblationStudy") -> None:
    from rich.console import Console
    from rich.table import Table

    from cog.evaluation.ablation_study import COLUMNS, describe_change

    names = [name for name in COLUMNS if any(each.find_metric(name) for each in study.results)]
    names = names or list(study.comparison.metrics)
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 200
    first = study.results[0]
    title = f"{first.corpus}, {len(first.prompt_ids)} prompts of {first.prompt_corpus}"
    shown = [SHORT_NAMES.get(name, name.rpartition("/")[2]) for name in names]
    table = Table("system", "changed", *shown, title=title)
    for result in study.results:
        cells = [_format_cell(study, result, name) for name in names]
        table.add_row(result.system, describe_change(result.system), *cells)
    table.caption = "+, -: better or worse than cog by more than chance (Holm, p < 0.05)"
    console.print(table)
    for note in study.comparison.notes:
        click.echo(f"cog: {note}", err=True)
    click.echo(f"cog: logged to the experiment {study.experiment} (make ui)", err=True)


def _format_cell(study: "AblationStudy", result: "EvaluationResult", name: str) -> str:
    from cog.evaluation.html import format_number

    metric = result.find_metric(name)
    if metric is None:
        return ""
    pair = study.find_pair(result.system, name)
    mark = ""
    if pair is not None and pair.better is not None:
        mark = " +" if pair.better == pair.second else " -"
    return format_number(metric.mean) + mark
