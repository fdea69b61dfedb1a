"""``cog evaluate``: a corpus and a protocol go in, scores come out and are logged to MLflow."""

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from cog.baselines.names import KNN_LM, SYSTEMS
from cog.cli.decoding_options import (
    take_knn_defaults,
    take_settings,
    with_decoding_options,
)
from cog.cli.main import check_stage, get_project, get_project_of
from cog.cli.numbers import make_type
from cog.cli.options import stage_option
from cog.decoding.settings import set_precision
from cog.evaluation.protocol import DEFAULT, GROUPS, PRESETS, Protocol, make_protocol
from cog.params import load_params
from cog.records import Decoding

if TYPE_CHECKING:
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
    from cog.evaluation.runner import evaluate
    from cog.evaluation.tracking import Tracker, choose_uri
    from cog.index.versions.unions import check_cards
    from cog.progress import show_progress
    from cog.registry import load_card

    if len(check_cards(paths, corpus_id)) > 1 and given["prompt_corpus_id"] is None:
        raise click.UsageError("a union holds out no prompts of its own: give --prompts-of ID")
    prompt_corpus_id = load_card(paths, given["prompt_corpus_id"] or corpus_id).id
    if (given["protocol_name"] or params.evaluate.protocol) == DEFAULT:
        decoding = take_settings(params.generate.decoding, paths.corpus(corpus_id), given)
        generate = replace(params.generate, decoding=decoding)
        params = replace(params, generate=generate)
        if given["system"] == KNN_LM and not given["untuned"]:
            knn = take_knn_defaults(params.datastore, paths.corpus(corpus_id))
            params = replace(params, datastore=knn)
    else:
        _refuse_settings(given)
    plan = make_plan(params, given, corpus_id, prompt_corpus_id)
    if not given["no_track"]:
        choose_uri(paths)  # refused before anything is written
    with show_progress(f"evaluate {corpus_id}", total=None, unit="texts") as progress:
        result = evaluate(paths, params, plan, progress)
        run = None
        if not given["no_track"]:
            run = Tracker(paths, given["experiment"]).log_result(result)
    _write(result, run, is_json=given["is_json"])


def _run_stage(ctx: click.Context) -> None:
    corpus_id = check_stage(ctx)
    paths = get_project_of(ctx, corpus_id)
    params = load_params(paths.params)
    from cog.evaluation.stage import evaluate_corpus
    from cog.progress import show_progress

    with show_progress(f"evaluate {corpus_id}", total=None, unit="texts") as progress:
        evaluate_corpus(paths, corpus_id, params, progress)


def _refuse_settings(given: dict[str, Any]) -> None:
    # the published protocols fix what a text is decoded with
    named = ("phrase_bias", "verify", "verify_threshold", "min_token_probability", "temperature")
    if given["others"]:
        raise click.UsageError(f"--set goes with --protocol {DEFAULT} only")
    for name in named:
        if given[name] is not None:
            option = "--" + name.replace("_", "-")
            raise click.UsageError(f"{option} goes with --protocol {DEFAULT} only")


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
    from cog.evaluation.session import Plan

    return Plan(
        corpus_id=corpus_id,
        prompt_corpus_id=prompt_corpus_id,
        system=given["system"],
        protocol=_protocol(params, given),
        groups=given["groups"] or GROUPS,
        allow_few_texts=given["allow_few_texts"],
        allow_contamination=given["allow_contamination"],
        device=given["device"],
    )


def _protocol(params: "Params", given: dict[str, Any]) -> Protocol:
    name = given["protocol_name"] or params.evaluate.protocol
    protocol = make_protocol(name, params.evaluate, params.generate.decoding)
    changes: dict[str, Any] = {}
    if given["num_prompts"] is not None:
        changes["num_prompts"] = given["num_prompts"]
    if given["seeds"] is not None:
        changes["seeds"] = _read_seeds(given["seeds"])
    if given["decoding"] is not None:
        protocol = protocol.with_decoding(method=given["decoding"])
    return replace(protocol, **changes)


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
    protocol = result.protocol
    click.echo(
        f"{result.corpus} · {result.system} · index {result.index[:12]} "
        f"({result.num_index_words:,} words) · protocol {protocol.name} {protocol.digest[:12]}"
    )
    click.echo(
        f"{len(result.prompt_ids)} prompts of {result.prompt_corpus} "
        f"({result.num_qualifying} of {result.num_held_out} held out are long enough), "
        f"seeds {', '.join(str(seed) for seed in protocol.seeds)}"
    )
    width = max((len(metric.name) for metric in result.metrics), default=0)
    click.echo(f"{'':{width}}  {'mean':>9}  {'95 % interval':>19}  texts")
    for metric in result.metrics:
        interval = f"{metric.low:9.3f} {metric.high:9.3f}" if metric.low < metric.high else ""
        click.echo(
            f"{metric.name:{width}}  {metric.mean:9.3f}  {interval:>19}  {metric.num_texts:5}"
        )
    for metric in result.metrics:
        if metric.note:
            click.echo(f"cog: {metric.name}: {metric.note}", err=True)
    if run is not None:
        click.echo(f"cog: logged to {run.experiment} as run {run.run_id} (make ui)", err=True)
