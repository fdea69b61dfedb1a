"""``cog train``: text goes in, a trained model comes out."""

from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from cog.cli.main import open_project, open_stage
from cog.cli.options import (
    FOLDER,
    LoopOptions,
    flag,
    json_option,
    list_flags,
    stage_option,
    track_option,
    with_record,
)
from cog.cli.output import echo_json, echo_outcome, tell
from cog.training.request import TrainRequest, train_on_corpus, train_with_tracking

if TYPE_CHECKING:
    from cog.training.job import TrainReport

MAX_SEED = 2**32 - 1  # of numpy


OPTIONS = {
    "profile": flag(metavar="NAME", help="Profile of params.yaml [default: train.profile]."),
    "data": flag(
        type=FOLDER,
        multiple=True,
        metavar="FILE",
        help="Text file, plain, .gz or .zst, or a folder of them; repeatable.",
    ),
    "licence": flag(metavar="TEXT", help="Licence of --data, for the model's card."),
    "corpus_id": flag("--corpus", metavar="ID", help="Train on the documents of this corpus."),
    "source": flag("--from", type=FOLDER, metavar="MODEL", help="Go on from this model's weights."),
    "objective": flag(
        type=click.Choice(["copy", "tokens"]),
        help="Learn to copy, or the next token only (the baseline).",
    ),
    "out": flag(type=FOLDER, metavar="DIR", help="Folder of the model [default: models/PROFILE]."),
    "evaluation": flag(
        "--check-against",
        type=FOLDER,
        multiple=True,
        metavar="FILE",
        help="Text that must not be trained on, such as test files; repeatable.",
    ),
    "on_overlap": flag(
        type=click.Choice(["refuse", "drop", "keep"]),
        help="What to do with training documents that share 13 words in a row with it.",
    ),
    "seed": flag(type=click.IntRange(0, MAX_SEED), help="Seed."),
    "num_workers": flag("--workers", type=click.IntRange(0), help="Processes that make batches."),
    **list_flags(LoopOptions),
}


@click.command("train")
@with_record("request", TrainRequest, OPTIONS)
@click.option("--experiment", default="train", show_default=True, help="Experiment in MLflow.")
@track_option
@json_option
@stage_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    request: TrainRequest,
    experiment: str,
    no_track: bool,
    as_json: bool,
    is_stage: bool,
) -> None:
    """Train a model on text files or on a corpus, or go on training one.

    Needs a GPU for the default profile; `--profile tiny` learns in a minute without. Ends at the
    limit of steps or seconds, or on Ctrl-C, and always writes the model.
    """
    if is_stage:
        _run_stage(ctx)
        return
    _check_options(ctx, request)
    paths, params = open_project(ctx)
    from cog.evaluation.tracking import follow_run

    follow = partial(follow_run, paths, None if no_track else experiment)
    report = train_with_tracking(paths, params, request, follow=follow)
    if report is not None:
        _write(report, as_json=as_json)


def _check_options(ctx: click.Context, request: TrainRequest) -> None:
    if bool(request.data) == bool(request.corpus_id):
        raise click.UsageError("give either --data or --corpus")
    is_default = ctx.get_parameter_source("on_overlap") is ParameterSource.DEFAULT
    if not is_default and not request.evaluation:
        raise click.UsageError("--on-overlap goes with --check-against")


def _run_stage(ctx: click.Context) -> None:
    from cog.evaluation.tracking import follow_run

    paths, params, corpus_id = open_stage(ctx)
    follow = partial(follow_run, paths, "train")
    train_on_corpus(paths, params, corpus_id, follow=follow)


def _write(report: "TrainReport", *, as_json: bool) -> None:
    if as_json:
        echo_json(asdict(report))
        return
    echo_outcome(report)
    tell(f"fingerprint {report.fingerprint[:12]}; {report.reason}")
