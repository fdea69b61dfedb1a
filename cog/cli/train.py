"""``cog train``: text goes in, a trained model comes out."""

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from cog.cli.main import open_project, open_stage
from cog.cli.options import (
    FOLDER,
    LoopOptions,
    json_option,
    option,
    stage_option,
    track_option,
    with_options,
)
from cog.cli.output import echo_json, echo_outcome, tell

if TYPE_CHECKING:
    from cog.training.job import TrainReport

MAX_SEED = 2**32 - 1  # of numpy


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainOptions:
    """What is trained, on what, and where it is written; as in ``TrainRequest``."""

    profile: str | None = option(
        "--profile", metavar="NAME", help="Profile of params.yaml [default: train.profile]."
    )
    data: tuple[Path, ...] = option(
        "--data",
        type=FOLDER,
        multiple=True,
        metavar="FILE",
        help="Text file, plain, .gz or .zst, or a folder of them; repeatable.",
    )
    licence: str | None = option(
        "--licence", metavar="TEXT", help="Licence of --data, for the model's card."
    )
    corpus_id: str | None = option(
        "--corpus", metavar="ID", help="Train on the documents of this corpus."
    )
    source: Path | None = option(
        "--from", type=FOLDER, metavar="MODEL", help="Go on from this model's weights."
    )
    objective: str = option(
        "--objective",
        type=click.Choice(["copy", "tokens"]),
        default="copy",
        show_default=True,
        help="Learn to copy, or the next token only (the baseline).",
    )
    out: Path | None = option(
        "--out", type=FOLDER, metavar="DIR", help="Folder of the model [default: models/PROFILE]."
    )
    evaluation: tuple[Path, ...] = option(
        "--check-against",
        type=FOLDER,
        multiple=True,
        metavar="FILE",
        help="Text that must not be trained on, such as test files; repeatable.",
    )
    on_overlap: str = option(
        "--on-overlap",
        type=click.Choice(["refuse", "drop", "keep"]),
        default="refuse",
        show_default=True,
        help="What to do with training documents that share 13 words in a row with it.",
    )
    seed: int = option(
        "--seed", type=click.IntRange(0, MAX_SEED), default=0, show_default=True, help="Seed."
    )
    num_workers: int | None = option(
        "--workers", type=click.IntRange(0), help="Processes that make batches."
    )


@click.command("train")
@with_options(given=TrainOptions, loop=LoopOptions)
@click.option("--experiment", default="train", show_default=True, help="Experiment in MLflow.")
@track_option
@json_option
@stage_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    given: TrainOptions,
    loop: LoopOptions,
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
    _check_options(ctx)
    paths, params = open_project(ctx)
    from cog.evaluation.tracking import follow_run
    from cog.training.request import TrainRequest, train_with_tracking

    profile = given.profile or params.train.profile
    request = TrainRequest(**asdict(given) | asdict(loop) | {"profile": profile})
    follow = partial(follow_run, paths, None if no_track else experiment)
    report = train_with_tracking(paths, params, request, follow=follow)
    if report is not None:
        _write(report, as_json=as_json)


def _check_options(ctx: click.Context) -> None:
    if bool(ctx.params["data"]) == bool(ctx.params["corpus_id"]):
        raise click.UsageError("give either --data or --corpus")
    is_default = ctx.get_parameter_source("on_overlap") is ParameterSource.DEFAULT
    if not is_default and not ctx.params["evaluation"]:
        raise click.UsageError("--on-overlap goes with --check-against")


def _run_stage(ctx: click.Context) -> None:
    from cog.evaluation.tracking import follow_run
    from cog.training.request import train_on_corpus

    paths, params, corpus_id = open_stage(ctx)
    follow = partial(follow_run, paths, "train")
    train_on_corpus(paths, params, corpus_id, follow=follow)


def _write(report: "TrainReport", *, as_json: bool) -> None:
    if as_json:
        echo_json(asdict(report))
        return
    echo_outcome(report)
    tell(f"fingerprint {report.fingerprint[:12]}; {report.reason}")
