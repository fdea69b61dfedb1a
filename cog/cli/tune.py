"""``cog tune``: a corpus goes in, the decoding settings that suit its index best are kept."""

import json
from typing import TYPE_CHECKING, Any

import click

from cog.cli.main import get_project
from cog.params import load_params
from cog.registry import load_card

if TYPE_CHECKING:
    from cog.evaluation.tune import Tuned
    from cog.paths import CorpusPaths


@click.command("tune")
@click.option("--corpus", "corpus_id", required=True, metavar="ID", help="The corpus.")
@click.option(
    "--prompts",
    "num_prompts",
    type=click.IntRange(1),
    default=64,
    show_default=True,
    help="Number of prompts, at most.",
)
@click.option("--decoding", type=click.Choice(["greedy", "nucleus"]), help="How a choice is taken.")
@click.option("--reset", "is_reset", is_flag=True, help="Forget what was chosen before.")
@click.option(
    "--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True
)
@click.option("--json", "is_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def command(ctx: click.Context, /, corpus_id: str, **given: Any) -> None:  # noqa: ANN401
    """Choose verification, phrase bias and temperature on held-out prompts.

    What is chosen lies beside the index and is what `cog generate` and `cog evaluate` begin with
    from then on. No evaluation takes the prompts that are used here.
    """
    paths = get_project(ctx)
    params = load_params(paths.params)
    chosen = load_card(paths, corpus_id).id
    if given["is_reset"]:
        _reset(paths.corpus(chosen), is_json=given["is_json"])
        return
    from cog.evaluation.tune import tune
    from cog.progress import show_progress

    with show_progress(f"tune {chosen}", total=None, unit="texts") as progress:
        found = tune(
            paths,
            params,
            chosen,
            num_prompts=given["num_prompts"],
            method=given["decoding"] or params.generate.decoding,
            device=given["device"],
            progress=progress,
        )
    _write(found, is_json=given["is_json"])


def _reset(corpus_paths: "CorpusPaths", *, is_json: bool) -> None:
    from cog.decoding.tuning import remove_tuning

    was_there = remove_tuning(corpus_paths)
    if is_json:
        click.echo(json.dumps({"corpus": corpus_paths.root.name, "removed": was_there}))
    else:
        click.echo("params.yaml holds again" if was_there else "nothing was tuned")


def _write(found: "Tuned", *, is_json: bool) -> None:
    from dataclasses import asdict

    from cog.evaluation.tune import describe_trial

    if is_json:
        click.echo(json.dumps(asdict(found.tuning), ensure_ascii=False))
        return
    ordered = sorted(found.trials, key=lambda trial: -trial.rating)
    for trial in ordered:
        click.echo(describe_trial(trial))
    reference = found.reference
    click.echo(
        f"reference: diversity {reference.diversity:.1f}, perplexity {reference.perplexity:.1f}"
    )
    click.echo(f"kept for this index: {found.tuning.values}")
