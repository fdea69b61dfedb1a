"""``cog tune``: a corpus goes in, the settings that suit its index or datastore best are kept."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from cog.baselines.system import COG, KNN_LM
from cog.cli.main import get_project
from cog.cli.numbers import make_type
from cog.cli.options import device_option, json_option
from cog.params import load_params
from cog.records import Decoding
from cog.registry import load_card

if TYPE_CHECKING:
    from cog.evaluation.tune import Tuned
    from cog.evaluation.tune_knn import KnnTuned
    from cog.paths import CorpusPaths


@click.command("tune")
@click.option("--corpus", "corpus_id", required=True, metavar="ID", help="The corpus.")
@click.option(
    "--system",
    type=click.Choice([COG, KNN_LM]),
    default=COG,
    show_default=True,
    help="What is tuned.",
)
@click.option(
    "--prompts",
    "num_prompts",
    type=click.IntRange(1),
    default=64,
    show_default=True,
    help="Number of prompts, at most.",
)
@click.option(
    "--decoding",
    type=make_type(Decoding, "method"),
    help="How a choice is taken; with cog only.",
)
@click.option("--reset", "is_reset", is_flag=True, help="Forget what was chosen before.")
@device_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    corpus_id: str,
    system: str,
    num_prompts: int,
    decoding: str | None,
    is_reset: bool,
    device: str,
    as_json: bool,
) -> None:
    """Choose the settings of a system on held-out prompts.

    Of cog: verification, phrase bias and temperature; of knn-lm: number of neighbours, distance
    scale and weight. What is chosen lies beside the index, or datastore, and is what `cog generate`
    and `cog evaluate` begin with from then on. No evaluation takes the prompts that are used here.
    """
    paths = get_project(ctx)
    params = load_params(paths.params)
    chosen = load_card(paths, corpus_id).id
    if system == KNN_LM and decoding is not None:
        raise click.UsageError("--decoding goes with --system cog: nothing is written for knn-lm")
    if is_reset:
        _reset(paths.corpus(chosen), system, as_json=as_json)
        return
    from cog.evaluation.tune import Tuned, tune
    from cog.evaluation.tune_knn import KnnTuned, tune_knn_lm
    from cog.progress import show_progress

    unit = "prompts" if system == KNN_LM else "texts"
    with show_progress(f"tune {chosen}", total=None, unit=unit) as progress:
        found: Tuned | KnnTuned
        if system == KNN_LM:
            found = tune_knn_lm(
                paths, params, chosen, num_prompts=num_prompts, device=device, progress=progress
            )
        else:
            found = tune(
                paths,
                params,
                chosen,
                num_prompts=num_prompts,
                method=decoding or params.generate.decoding.method,
                device=device,
                progress=progress,
            )
    if as_json:
        click.echo(json.dumps(asdict(found.tuning), ensure_ascii=False))
    elif isinstance(found, KnnTuned):
        _write_knn_lm(found)
    else:
        _write(found)


def _reset(corpus_paths: "CorpusPaths", system: str, *, as_json: bool) -> None:
    from cog.baselines.knn_tuned import remove_knn_tuning
    from cog.decoding.tuning import remove_tuning

    remove = remove_knn_tuning if system == KNN_LM else remove_tuning
    was_there = remove(corpus_paths)
    if as_json:
        click.echo(json.dumps({"corpus": corpus_paths.root.name, "removed": was_there}))
    else:
        click.echo("params.yaml holds again" if was_there else "nothing was tuned")


def _write_knn_lm(found: "KnnTuned") -> None:
    from cog.baselines.knn_tuned import describe_settings

    for trial in sorted(found.trials, key=lambda trial: trial.perplexity):
        click.echo(f"{trial.perplexity:9.3f}  {describe_settings(trial.values)}")
    if found.before is not None:
        before = found.before
        click.echo(f"{before.perplexity:9.3f}  params.yaml: {describe_settings(before.values)}")
    click.echo(f"{found.perplexity_alone:9.3f}  the model alone")
    record = found.tuning.record
    click.echo(
        f"perplexity of {record['num_tokens']} tokens that follow {record['num_prompts']} prompts"
    )
    if found.best.perplexity >= found.perplexity_alone:
        click.echo("cog: no setting predicts better than the model alone", err=True)
    click.echo(f"kept for this datastore: {describe_settings(found.tuning.values)}")


def _write(found: "Tuned") -> None:
    from cog.decoding.tuning import describe_values
    from cog.evaluation.tune import describe_trial

    ordered = sorted(found.trials, key=lambda trial: -trial.rating)
    for trial in ordered:
        click.echo(describe_trial(trial))
    reference = found.reference
    click.echo(
        f"reference: diversity {reference.diversity:.1f}, perplexity {reference.perplexity:.1f}"
    )
    click.echo(f"kept for this index: {describe_values(found.tuning.values)}")
