"""``cog evaluate``: a corpus and a protocol go in, scores come out and are logged to MLflow.

And what studies of several evaluations share with it.
"""

from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING

import click

from cog.baselines.system import SYSTEMS
from cog.cli.decoding_options import DecodingOptions, collect_settings, describe_setting
from cog.cli.main import open_project, open_stage
from cog.cli.options import (
    DeviceOptions,
    json_option,
    make_type,
    option,
    stage_option,
    track_option,
    with_options,
)
from cog.cli.output import echo_json, tell
from cog.decoding.settings import set_precision
from cog.evaluation.protocol import GROUPS, PRESETS
from cog.reading import FieldError
from cog.records import Decoding

if TYPE_CHECKING:
    from cog.evaluation.records import EvaluationResult
    from cog.evaluation.session import Plan
    from cog.evaluation.studies import Kind, Study
    from cog.evaluation.tracking import Run
    from cog.params import Params
    from cog.paths import ProjectPaths


class Seeds(click.ParamType[tuple[int, ...]]):
    """Whole numbers with commas between, each of them once."""

    name = "0,1,…"

    def convert(
        self,
        value: str | tuple[int, ...],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> tuple[int, ...]:
        """Read what was given."""
        parts = [part.strip() for part in str(value).split(",")]
        if not all(part.isascii() and part.isdigit() for part in parts):
            self.fail("give whole numbers with commas between", param, ctx)
        seeds = tuple(int(part) for part in parts)
        if len(set(seeds)) < len(seeds):
            self.fail("give each seed once", param, ctx)
        return seeds


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureOptions(DeviceOptions):
    """How texts are measured, of an evaluation or of each evaluation of a study."""

    num_prompts: int | None = option(
        "--prompts", type=click.IntRange(1), help="Number of prompts, at most."
    )
    seeds: tuple[int, ...] | None = option(
        "--seeds",
        type=Seeds(),
        metavar="0,1,…",
        help="Seeds of the texts; each prompt gets one of each.",
    )
    protocol: str | None = option(
        "--protocol", type=click.Choice(PRESETS), help="Rules of the measurement."
    )
    groups: tuple[str, ...] = option(
        "--metric",
        type=click.Choice(GROUPS),
        multiple=True,
        help="Group of scores, repeatable [default: all].",
    )
    allow_few_texts: bool = option(
        "--allow-few-texts", is_flag=True, help="Compute MAUVE on fewer than 50 texts."
    )
    allow_contamination: bool = option(
        "--allow-contamination",
        is_flag=True,
        help="Score texts whose references are in the index.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyOptions(MeasureOptions):
    """What the command line gives of the evaluations of a study."""

    decoding: str | None = option(
        "--decoding", type=make_type(Decoding, "method"), help="How a choice is taken."
    )
    as_json: bool = option("--json", is_flag=True, help="Print one JSON object.")


@click.command("evaluate")
@click.option(
    "--corpus", "corpus_id", required=True, metavar="ID[+ID]...", help="Corpus to copy from."
)
@click.option(
    "--prompts-of",
    "prompt_corpus_id",
    metavar="ID",
    help="Corpus whose held-out prompts are continued [default: the same].",
)
@click.option(
    "--system", type=click.Choice(SYSTEMS), default="cog", show_default=True, help="What writes."
)
@with_options(decoding=DecodingOptions, measure=MeasureOptions)
@click.option("--experiment", default="evaluate", show_default=True, help="Experiment in MLflow.")
@track_option
@json_option
@stage_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    corpus_id: str,
    prompt_corpus_id: str | None,
    system: str,
    decoding: DecodingOptions,
    measure: MeasureOptions,
    experiment: str,
    no_track: bool,
    as_json: bool,
    is_stage: bool,
) -> None:
    """Score the texts of a corpus under one pinned protocol.

    What was written or measured before is taken from disk. What is not given is taken from the
    sections `evaluate` and `generate` of params.yaml, or from what `cog tune` chose.
    """
    if is_stage:
        _run_stage(ctx)
        return
    paths, params = open_project(ctx)
    params = set_precision(params, decoding.precision)
    from cog.evaluation.planning import Wanted, evaluate_wanted
    from cog.progress import show_progress

    wanted = Wanted(
        corpus_id=corpus_id,
        prompt_corpus_id=prompt_corpus_id,
        system=system,
        settings=collect_settings(decoding),
        is_untuned=decoding.untuned,
        **asdict(measure),
    )
    with show_progress(f"evaluate {corpus_id}", total=None, unit="texts") as progress:
        try:
            result, run = evaluate_wanted(
                paths,
                params,
                wanted,
                experiment=None if no_track else experiment,
                progress=progress,
            )
        except FieldError as error:
            raise click.UsageError(describe_setting(error)) from None
    _write(result, run, as_json=as_json)


def _run_stage(ctx: click.Context) -> None:
    paths, params, corpus_id = open_stage(ctx)
    from cog.evaluation.planning import evaluate_corpus
    from cog.progress import show_progress

    with show_progress(f"evaluate {corpus_id}", total=None, unit="texts") as progress:
        evaluate_corpus(paths, corpus_id, params, progress)


def _write(result: "EvaluationResult", run: "Run | None", *, as_json: bool) -> None:
    if as_json:
        echo_json({**result.summary_to_json(), "run": run.run_id if run else None})
        return
    protocol, system = result.protocol, result.system
    click.echo(
        f"{result.corpus} · {system} {system.digest} · index {system.index[:12]} "
        f"({system.num_index_words:,} words) · protocol {protocol.name} {protocol.digest[:12]}"
    )
    click.echo(
        f"{len(result.prompt_ids)} prompts of {result.prompt_corpus}, of "
        f"{len(set(result.document_ids))} documents "
        f"({result.num_qualifying} of {result.num_held_out} held out are long enough), "
        f"seeds {', '.join(str(seed) for seed in protocol.seeds)}"
    )
    width = max((len(score.name) for score in result.scores), default=0)
    click.echo(f"{'':{width}}  {'mean':>9}  {'95 % interval':>19}  {'real text':>9}  texts")
    for score in result.scores:
        interval = f"{score.low:9.3f} {score.high:9.3f}" if score.low < score.high else ""
        reference = "" if score.reference is None else f"{score.reference:.3f}"
        click.echo(
            f"{score.name:{width}}  {score.mean:9.3f}  {interval:>19}  {reference:>9}  "
            f"{score.num_texts:5}"
        )
    notes: dict[str, list[str]] = {}
    for score in result.scores:
        notes.setdefault(score.note, []).append(score.name)
    for note, names in notes.items():
        if note:
            tell(f"{', '.join(names)}: {note}")
    if run is not None:
        tell(f"logged to {run.experiment} as run {run.run_id} (make ui)")


def make_plan(
    params: "Params", given: StudyOptions, corpus_id: str, prompt_corpus_id: str, /
) -> "Plan":
    """Make a plan of what the command line gives and of params.yaml."""
    from cog.evaluation.planning import Wanted
    from cog.evaluation.planning import make_plan as make

    measure = {each.name: getattr(given, each.name) for each in fields(MeasureOptions)}
    settings = {} if given.decoding is None else {"decoding": given.decoding}
    wanted = Wanted(
        corpus_id=corpus_id, prompt_corpus_id=prompt_corpus_id, settings=settings, **measure
    )
    return make(params, wanted)


def run_study(paths: "ProjectPaths", params: "Params", kind: "Kind", *, experiment: str) -> "Study":
    """Run a study while its progress is shown."""
    from cog.evaluation.studies import run_study as run
    from cog.progress import show_progress

    with show_progress(experiment, total=None, unit="texts") as progress:
        return run(paths, params, kind, experiment=experiment, progress=progress)


def tell_notes(study: "Study") -> None:
    """Say what is to be known beside the numbers, and where they were logged."""
    for note in study.notes:
        tell(note)
    tell(f"logged to the experiment {study.experiment} (make ui)")
