"""``cog study index-size`` and ``domain``: corpora go in, a curve or a matrix comes out."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cog.cli.evaluate import make_plan
from cog.cli.main import get_project
from cog.cli.numbers import make_type
from cog.errors import EvaluationError
from cog.evaluation.protocol import GROUPS, PRESETS
from cog.params import load_params
from cog.records import Decoding

if TYPE_CHECKING:
    from cog.evaluation.studies import Study

Function = TypeVar("Function", bound=Callable[..., Any])
SHOWN = (
    "likelihood/per-word",
    "quality/mauve",
    "repetition/diversity",
    "perplexity/generated",
    "copies/tokens",
)


def with_study_options(function: Function) -> Function:
    """Add the options that studies of evaluations share."""
    options = [
        click.option("--decoding", type=make_type(Decoding, "method"), help="How to choose."),
        click.option(
            "--prompts", "num_prompts", type=click.IntRange(1), help="Number of prompts, at most."
        ),
        click.option("--seeds", metavar="0,1,…", help="Seeds of the texts."),
        click.option("--protocol", "protocol_name", type=click.Choice(PRESETS), help="The rules."),
        click.option(
            "--metric",
            "groups",
            type=click.Choice(GROUPS),
            multiple=True,
            help="Group of scores, repeatable [default: all].",
        ),
        click.option(
            "--allow-few-texts", is_flag=True, help="Compute MAUVE on fewer than 50 texts."
        ),
        click.option(
            "--allow-contamination", is_flag=True, help="Score texts whose references are indexed."
        ),
        click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto"),
        click.option("--json", "is_json", is_flag=True, help="Print one JSON object."),
    ]
    for option in reversed(options):
        function = option(function)
    return function


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
@click.option("--plot", "plot_path", type=click.Path(path_type=Path), help="Also draw the curve.")
@with_study_options
@click.pass_context
def index_size(
    ctx: click.Context,
    /,
    corpus_id: str,
    proportions: str,
    plot_path: Path | None,
    **given: Any,  # noqa: ANN401
) -> None:
    """Score nested subsets of a corpus on the same prompts; nothing is trained.

    Cards and indexes that are missing are made first.
    """
    paths = get_project(ctx)
    params = load_params(paths.params)
    try:
        sizes = [float(part) for part in proportions.split(",")]
    except ValueError:
        raise click.BadParameter("give numbers with commas", param_hint="--proportions") from None
    from cog.evaluation.plot import check_plot_path, plot_index_sizes, save_plot
    from cog.evaluation.studies import study_index_size
    from cog.evaluation.subsets import make_subsets
    from cog.pipeline import Builder
    from cog.progress import show_progress

    if plot_path is not None:
        check_plot_path(plot_path)
    plan = make_plan(params, given, corpus_id, corpus_id)
    experiment = f"index-size {corpus_id}"
    corpus_ids = make_subsets(paths, corpus_id, sizes)
    Builder(paths, params, show_progress, given["source"], given["device"]).build_missing(
        corpus_ids
    )
    with show_progress(experiment, total=None, unit="texts") as progress:
        study = study_index_size(
            paths, params, plan, corpus_ids=corpus_ids, experiment=experiment, progress=progress
        )
    if plot_path is not None:
        save_plot(plot_index_sizes(study.comparisons[0]), plot_path)
    _write(study, is_json=given["is_json"])


@click.command("domain")
@click.option("--corpora", metavar="A,B,…", required=True, help="Corpora, with commas between.")
@click.option(
    "--plot",
    "plot_path",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the matrix as a PNG picture.",
)
@with_study_options
@click.pass_context
def domain(ctx: click.Context, /, corpora: str, plot_path: Path | None, **given: Any) -> None:  # noqa: ANN401
    """Score every corpus on the held-out prompts of every corpus.

    Indexes are compared on one set of prompts at a time: what suits which texts is told by the
    columns of the matrix.
    """
    paths = get_project(ctx)
    params = load_params(paths.params)
    from cog.evaluation.studies import study_domain
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
    Builder(paths, params, show_progress, device=given["device"]).build_missing(chosen)
    with show_progress("domain", total=None, unit="texts") as progress:
        study = study_domain(
            paths, params, plan, corpus_ids=chosen, experiment="domain", progress=progress
        )
    if plot_path is not None:
        plot_path.write_bytes(next(iter(study.figures.values())))
    _write(study, is_json=given["is_json"])


def _write(study: "Study", *, is_json: bool) -> None:
    if is_json:
        click.echo(json.dumps(study.to_json(), ensure_ascii=False))
        return
    from rich.console import Console
    from rich.table import Table

    from cog.evaluation.page import format_number

    console = Console(highlight=False)
    for comparison in study.comparisons:
        names = [name for name in comparison.metrics if name in SHOWN] or list(comparison.metrics)
        shown = [name.rpartition("/")[2] for name in names]
        table = Table("index", "words", *shown, title=f"prompts of {comparison.prompts}")
        for place, label in enumerate(comparison.labels):
            rows = [comparison.get_rows(name)[place] for name in names]
            cells = [format_number(row.mean) + "*" * row.is_better for row in rows]
            table.add_row(label, f"{rows[0].system.num_index_words:,}", *cells)
        console.print(table)
    click.echo(f"cog: logged to the experiment {study.experiment} (make ui)", err=True)
