"""``cog evaluate``: a corpus and a protocol go in, scores come out and are logged to MLflow."""

import json
from typing import TYPE_CHECKING, Any

import click

from cog.baselines.system import COG, SYSTEMS
from cog.cli.decoding_options import collect_settings, describe_setting, with_decoding_options
from cog.cli.main import check_stage, get_project, get_project_of
from cog.cli.numbers import make_type
from cog.cli.options import stage_option
from cog.decoding.settings import set_precision
from cog.evaluation.protocol import GROUPS, PRESETS
from cog.params import load_params
from cog.reading import FieldError
from cog.records import Decoding

if TYPE_CHECKING:
    from cog.evaluation.planning import Wanted
    from cog.evaluation.records import EvaluationResult
    from cog.evaluation.session import Plan
    from cog.evaluation.tracking import Run
    from cog.params import Params


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
@click.option("--decoding", type=make_type(Decoding, "method"), help="How a choice is taken.")
@click.option("--top-p", type=make_type(Decoding, "top_p"), help="Mass of the nucleus.")
@click.option(
    "--top-k-documents",
    type=make_type(Decoding, "top_k_documents"),
    help="Chunks retrieved for a prompt; 0 copies nothing.",
)
@click.option(
    "--max-verbatim-words",
    type=make_type(Decoding, "max_verbatim_words"),
    help="Longest run of words copied from one place; 0: no limit.",
)
@with_decoding_options
@click.option(
    "--prompts", "num_prompts", type=click.IntRange(1), help="Number of prompts, at most."
)
@click.option("--seeds", metavar="0,1,…", help="Seeds of the texts; each prompt gets one of each.")
@click.option(
    "--protocol", "protocol_name", type=click.Choice(PRESETS), help="Rules of the measurement."
)
@click.option(
    "--metric",
    "groups",
    type=click.Choice(GROUPS),
    multiple=True,
    help="Group of scores, repeatable [default: all].",
)
@click.option("--allow-few-texts", is_flag=True, help="Compute MAUVE on fewer than 50 texts.")
@click.option(
    "--allow-contamination", is_flag=True, help="Score texts whose references are in the index."
)
@click.option("--experiment", default="evaluate", show_default=True, help="Experiment in MLflow.")
@click.option("--no-track", is_flag=True, help="Log nothing to MLflow.")
@click.option(
    "--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True
)
@click.option("--json", "is_json", is_flag=True, help="Print one JSON object.")
@stage_option
@click.pass_context
def command(ctx: click.Context, /, corpus_id: str, **given: Any) -> None:  # noqa: ANN401
    """Score the texts of a corpus under one pinned protocol.

    What was written or measured before is taken from disk. What is not given is taken from the
    sections `evaluate` and `generate` of params.yaml, or from what `cog tune` chose.
    """
    if given["is_stage"]:
        _run_stage(ctx)
        return
    paths = get_project(ctx)
    params = set_precision(load_params(paths.params), given["precision"])
    wanted = make_wanted(given, corpus_id, given["prompt_corpus_id"])
    from cog.evaluation.planning import evaluate_wanted
    from cog.progress import show_progress

    with show_progress(f"evaluate {corpus_id}", total=None, unit="texts") as progress:
        try:
            result, run = evaluate_wanted(
                paths,
                params,
                wanted,
                experiment=None if given["no_track"] else given["experiment"],
                progress=progress,
            )
        except FieldError as error:
            raise click.UsageError(describe_setting(error)) from None
    _write(result, run, is_json=given["is_json"])


def _run_stage(ctx: click.Context) -> None:
    corpus_id = check_stage(ctx)
    paths = get_project_of(ctx, corpus_id)
    params = load_params(paths.params)
    from cog.evaluation.stage import evaluate_corpus
    from cog.progress import show_progress

    with show_progress(f"evaluate {corpus_id}", total=None, unit="texts") as progress:
        evaluate_corpus(paths, corpus_id, params, progress)


def make_plan(
    params: "Params", given: dict[str, Any], corpus_id: str, prompt_corpus_id: str, /
) -> "Plan":
    """Make a plan of what the command line gives and of params.yaml.

    :param params: The project's parameters.
    :param given: What the command line gives.
    :param corpus_id: The corpus that is copied from.
    :param prompt_corpus_id: The corpus whose prompts are continued.
    :returns: The plan.
    """
    from cog.evaluation.planning import make_plan as make

    return make(params, make_wanted(given, corpus_id, prompt_corpus_id))


def make_wanted(given: dict[str, Any], corpus_id: str, prompt_corpus_id: str | None, /) -> "Wanted":
    """What is to be evaluated, as the command line gives it.

    :param given: What the command line gives.
    :param corpus_id: The corpus that is copied from.
    :param prompt_corpus_id: The corpus whose prompts are continued; None for the same.
    :returns: What is wanted.
    """
    from cog.evaluation.planning import Wanted

    return Wanted(
        corpus_id=corpus_id,
        prompt_corpus_id=prompt_corpus_id,
        system=given.get("system", COG),
        settings=collect_settings(given),
        is_untuned=given.get("untuned", False),
        protocol=given["protocol_name"],
        num_prompts=given["num_prompts"],
        seeds=None if given["seeds"] is None else _read_seeds(given["seeds"]),
        groups=given["groups"] or GROUPS,
        allow_few_texts=given["allow_few_texts"],
        allow_contamination=given["allow_contamination"],
        device=given["device"],
    )


def _read_seeds(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise click.BadParameter("give whole numbers with commas between", param_hint="--seeds")
    seeds = tuple(int(part) for part in parts)
    if len(set(seeds)) < len(seeds):
        raise click.BadParameter("give each seed once", param_hint="--seeds")
    return seeds


def _write(result: "EvaluationResult", run: "Run | None", *, is_json: bool) -> None:
    if is_json:
        content = {**result.summary_to_json(), "run": run.run_id if run else None}
        click.echo(json.dumps(content, ensure_ascii=False))
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
            click.echo(f"cog: {', '.join(names)}: {note}", err=True)
    if run is not None:
        click.echo(f"cog: logged to {run.experiment} as run {run.run_id} (make ui)", err=True)
