"""``cog paper study index-size``: a corpus goes in, the scores of its nested parts come out."""

from pathlib import Path

import click

from cog.cli.evaluate import StudyOptions, make_plan, run_study
from cog.cli.main import open_project
from cog.cli.options import plot_option, with_options
from cog.cli.output import write_picture
from cog.cli.study_domain import write_study


@click.command("index-size")
@click.option("--corpus", "corpus_id", required=True, metavar="ID", help="What the subsets extend.")
@click.option(
    "--proportions", required=True, metavar="0.01,0.1,1", help="Sizes of the nested subsets."
)
@click.option(
    "--source",
    type=click.Path(path_type=Path, exists=True),
    help="Local file or folder to build from, where the card's source is out of reach.",
)
@plot_option
@with_options(given=StudyOptions)
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    corpus_id: str,
    proportions: str,
    source: Path | None,
    plot_path: Path | None,
    given: StudyOptions,
) -> None:
    """Score nested subsets of a corpus on the same prompts; nothing is trained.

    Cards and indexes that are missing are made first.
    """
    paths, params = open_project(ctx)
    try:
        sizes = [float(part) for part in proportions.split(",")]
    except ValueError:
        raise click.BadParameter("give numbers with commas", param_hint="--proportions") from None
    from cog.evaluation.plot import plot_index_sizes
    from cog.evaluation.studies import make_subsets, study_index_size
    from cog.pipeline import Builder
    from cog.progress import show_progress

    plan = make_plan(params, given, corpus_id, corpus_id)
    corpus_ids = make_subsets(paths, corpus_id, sizes)
    Builder(paths, params, show_progress, source, given.device).build_missing(corpus_ids)
    kind = study_index_size(plan, corpus_ids)
    study = run_study(paths, params, kind, experiment=f"index-size {corpus_id}")
    if plot_path is not None:
        write_picture(plot_index_sizes(study.comparisons[0]), plot_path)
    write_study(study, as_json=given.as_json)
