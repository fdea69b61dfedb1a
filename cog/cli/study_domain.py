"""``cog paper study domain``: corpora go in, the scores of each on the prompts of each come out."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cog.cli.evaluate import StudyOptions, make_plan, run_study, tell_notes
from cog.cli.main import open_project
from cog.cli.options import plot_option, with_options
from cog.cli.output import echo_json, print_table, write_picture
from cog.errors import EvaluationError

if TYPE_CHECKING:
    from cog.evaluation.studies import Study

SHOWN = (
    "likelihood/per-word",
    "quality/mauve",
    "repetition/diversity",
    "perplexity/generated",
    "copies/tokens",
)


@click.command("domain")
@click.option("--corpora", metavar="A,B,…", required=True, help="Corpora, with commas between.")
@plot_option
@with_options(given=StudyOptions)
@click.pass_context
def command(
    ctx: click.Context, /, *, corpora: str, plot_path: Path | None, given: StudyOptions
) -> None:
    """Score every corpus on the held-out prompts of every corpus.

    Indexes are compared on one set of prompts at a time: what suits which texts is told by the
    columns of the matrix.
    """
    paths, params = open_project(ctx)
    from cog.evaluation.plot import plot_matrix
    from cog.evaluation.studies import choose_matrices, study_domain
    from cog.pipeline import Builder
    from cog.progress import show_progress
    from cog.registry import load_card

    parts = dict.fromkeys(part.strip() for part in corpora.split(",") if part.strip())
    chosen = [load_card(paths, part).id for part in parts]
    if len(chosen) < 2:
        raise EvaluationError(
            "a domain study needs two corpora or more",
            found=str(len(chosen)),
            run="pass --corpora A,B",
        )
    plan = make_plan(params, given, chosen[0], chosen[0])
    Builder(paths, params, show_progress, device=given.device).build_missing(chosen)
    study = run_study(paths, params, study_domain(plan, chosen), experiment="domain")
    if plot_path is not None:
        name = choose_matrices(study.comparisons)[0]
        write_picture(plot_matrix(study.comparisons, name), plot_path)
    write_study(study, as_json=given.as_json)


def write_study(study: "Study", *, as_json: bool) -> None:
    """Print the scores of a study, a table for each set of prompts; or one JSON object."""
    if as_json:
        echo_json(study.to_json())
        return
    from cog.evaluation.page import format_number

    for comparison in study.comparisons:
        names = [name for name in comparison.metrics if name in SHOWN] or list(comparison.metrics)
        shown = [name.rpartition("/")[2] for name in names]
        lines = []
        for place, label in enumerate(comparison.labels):
            rows = [comparison.get_rows(name)[place] for name in names]
            cells = [format_number(row.mean) + "*" * row.is_better for row in rows]
            lines.append([label, f"{rows[0].system.num_index_words:,}", *cells])
        title = f"prompts of {comparison.prompts}"
        print_table(("index", "words", *shown), lines, title=title)
    tell_notes(study)
