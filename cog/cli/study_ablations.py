"""``cog paper study ablations``: a corpus goes in, what each part of CoG is worth comes out."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cog.baselines.system import ABLATIONS, CHANGES, COG, VARIANTS
from cog.cli.evaluate import StudyOptions, make_plan, run_study, tell_notes
from cog.cli.main import open_project
from cog.cli.options import html_option, plot_option, with_options
from cog.cli.output import echo_json, print_table, write_picture, write_texts

if TYPE_CHECKING:
    from cog.evaluation.studies import Study

NUM_SHOWN_PROMPTS = 20
SHARE = "copies/tokens"
COLUMNS = {
    "quality/mauve": "MAUVE",
    "repetition/diversity": "diversity",
    "perplexity/generated": "perplexity",
    "likelihood/per-word": "references, per word",
    SHARE: "copied",
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
    from cog.evaluation.studies import study_ablations
    from cog.registry import load_card

    corpus_id = load_card(paths, corpus_id).id
    prompts = load_card(paths, prompt_corpus_id or corpus_id).id
    kind = study_ablations(make_plan(params, given, corpus_id, prompts), systems)
    study = run_study(paths, params, kind, experiment=f"ablations {corpus_id}")
    comparison = study.comparisons[0]
    if plot_path is not None:
        write_picture(plot_systems(comparison), plot_path)
    if html_path is not None:
        write_texts(comparison, study.results.values(), html_path, num_prompts=NUM_SHOWN_PROMPTS)
    if given.as_json:
        echo_json(study.to_json())
    else:
        _print(study)


def _print(study: "Study") -> None:
    measured = {row.metric: row for each in study.comparisons for row in each.rows}
    shown = {name: word for name, word in COLUMNS.items() if name in measured}
    shown = shown or {name: name.rpartition("/")[2] for name in measured}
    first = study.results[COG]
    rows = [
        [name, CHANGES.get(name, "as it is"), *(_format_cell(study, each, name) for each in shown)]
        for name in study.results
    ]
    real = [measured[metric].reference for metric in shown]
    if any(value is not None for value in real):
        told = zip(shown, real, strict=True)
        cells = ["" if value is None else _format(name, value) for name, value in told]
        rows.append(["real text", "what follows the prompts", *cells])
    print_table(
        ("system", "changed", *shown.values()),
        rows,
        title=f"{first.corpus}, {len(first.prompt_ids)} prompts of {first.prompt_corpus}",
        caption="+, -: better or worse than cog by more than chance (Holm, p < 0.05)",
    )
    tell_notes(study)


def _format_cell(study: "Study", metric: str, name: str) -> str:
    for comparison in study.comparisons:
        for row in comparison.get_rows(metric):
            if row.label == name:
                pair = comparison.find_pair(metric, COG, name)
                mark = ""
                if pair is not None and pair.better is not None:
                    mark = " +" if pair.better == name else " -"
                return _format(metric, row.mean) + mark
    return "–"


def _format(metric: str, value: float) -> str:
    from cog.evaluation.page import format_number

    return f"{value:.0%}" if metric == SHARE else format_number(value)
