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
    from cog.evaluation.study import Study

Function = TypeVar("Function", bound=Callable[..., Any])
SHOWN = ("mauve", "diversity", "generated", "reference", "tokens")


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
    from cog.evaluation.study import study_index_size
    from cog.pipeline import Builder
    from cog.progress import show_progress

    if plot_path is not None:
        check_plot_path(plot_path)
    plan = make_plan(params, {**given, "system": "cog"}, corpus_id, corpus_id)
    experiment = f"index-size {corpus_id}"
    study = study_index_size(
        paths,
        params,
        plan,
        proportions=sizes,
        experiment=experiment,
        builder=Builder(paths, params, show_progress, given["source"], given["device"]),
    )
    if plot_path is not None:
        save_plot(plot_index_sizes(study.comparison), plot_path)
    _write(study, is_json=given["is_json"])


@click.command("domain")
@click.option("--corpora", metavar="A,B,…", required=True, help="Corpora, with commas between.")
@with_study_options
@click.pass_context
def domain(ctx: click.Context, /, corpora: str, **given: Any) -> None:  # noqa: ANN401
    """Score every corpus on the held-out prompts of every corpus."""
    paths = get_project(ctx)
    params = load_params(paths.params)
    from cog.evaluation.study import study_domain
    from cog.pipeline import Builder
    from cog.progress import show_progress

    chosen = [part.strip() for part in corpora.split(",") if part.strip()]
    if not chosen:
        raise EvaluationError("a domain study needs two corpora or more", found="none")
    plan = make_plan(params, {**given, "system": "cog"}, chosen[0], chosen[0])
    experiment = "domain"
    study = study_domain(
        paths,
        params,
        plan,
        corpus_ids=chosen,
        experiment=experiment,
        builder=Builder(paths, params, show_progress, device=given["device"]),
    )
    _write(study, is_json=given["is_json"])


def _write(study: "Study", *, is_json: bool) -> None:
    if is_json:
        content = {"experiment": study.experiment, **study.comparison.to_json()}
        click.echo(json.dumps(content, ensure_ascii=False))
        return
    from rich.console import Console
    from rich.table import Table

    names = [name for name in study.comparison.metrics if name.rpartition("/")[2] in SHOWN] or list(
        study.comparison.metrics
    )
    table = Table("index", "words", "prompts of", *(name.rpartition("/")[2] for name in names))
    for result in study.results:
        scores = [result.find_metric(name) for name in names]
        table.add_row(
            result.corpus,
            f"{result.num_index_words:,}",
            f"{result.prompt_corpus} ({len(result.prompt_ids)})",
            *(f"{score.mean:.3f}" if score else "" for score in scores),
        )
    Console().print(table)
    click.echo(f"cog: logged to the experiment {study.experiment} (make ui)", err=True)
