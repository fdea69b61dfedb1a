"""``cog tune``: a system and a corpus go in, the settings that suit them best are kept."""

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from cog.baselines.system import BASELINES, COG
from cog.cli.main import open_project
from cog.cli.options import device_option, json_option, make_type
from cog.cli.output import echo_json, echo_result, tell
from cog.evaluation.tune_settings import BUDGET
from cog.records import Decoding

if TYPE_CHECKING:
    from cog.evaluation.tune import Tuned


@click.command("tune")
@click.option("--corpus", "corpus_id", required=True, metavar="ID", help="The corpus.")
@click.option(
    "--system",
    type=click.Choice([COG, *BASELINES]),
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
    "--trials",
    "budget",
    type=click.IntRange(1),
    default=BUDGET,
    show_default=True,
    help="Number of settings tried, at most; of every system as many, to be fair.",
)
@click.option("--decoding", type=make_type(Decoding, "method"), help="How a choice is taken.")
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
    budget: int,
    decoding: str | None,
    is_reset: bool,
    device: str,
    as_json: bool,
) -> None:
    """Choose the settings of a system on held-out prompts.

    Of cog: verification, phrase bias and more; of knn-lm: neighbours, distance scale and weight; of
    in-context: chunks and where they stand; with nucleus decoding, of every system also temperature
    and top_p. What is chosen is kept for the corpus, and is what `cog evaluate` begins with from
    then on (of cog: `cog generate` too). No evaluation takes the prompts that are used here.
    """
    paths, params = open_project(ctx, corpus_id)
    if is_reset:
        from cog.decoding.tuning import remove_tuning

        was_there = remove_tuning(paths.corpus(corpus_id), system)
        text = "params.yaml holds again" if was_there else "nothing was tuned"
        echo_result({"corpus": corpus_id, "removed": was_there}, text, as_json=as_json)
        return
    from cog.evaluation.tune import tune
    from cog.progress import show_progress

    with show_progress(f"tune {corpus_id}", total=None, unit="texts") as progress:
        found = tune(
            paths,
            params,
            corpus_id,
            system=system,
            num_prompts=num_prompts,
            method=decoding or params.generate.decoding.method,
            device=device,
            progress=progress,
            budget=budget,
        )
    if as_json:
        echo_json(asdict(found.tuning))
    else:
        _write(found)


def _write(found: "Tuned") -> None:
    from cog.decoding.tuning import describe_values

    tuning, record = found.tuning, found.tuning.record
    for trial in sorted(found.trials, key=lambda trial: (trial.is_by_texts, -trial.rating)):
        click.echo(str(trial))
    if record["reference"]:
        told = ", ".join(f"{name} {value:.1f}" for name, value in record["reference"].items())
        click.echo(f"reference: {told}")
    click.echo(
        f"{len(found.trials)} trials of {record['budget']} that every system has, on "
        f"{record['num_prompts']} prompts for tuning"
    )
    click.echo(_describe_gain(found))
    if found.is_useless:
        tell("no setting predicts better than the model alone")
    what = "this index" if tuning.index else "this model"
    click.echo(f"kept for {what}: {describe_values(tuning.values | tuning.options)}")


def _describe_gain(found: "Tuned") -> str:
    gain, kind = found.gain, "texts" if found.trials[-1].is_by_texts else "references"
    if gain.mean <= 0:
        return f"by {kind} nothing is rated better than what the search began with"
    told = f"by {kind} rated better than what the search began with by {gain.mean:.3f}"
    if gain.low == gain.high:
        return f"{told}; too few documents to tell whether by chance"
    told += f" ({gain.low:.3f} to {gain.high:.3f}, 95 % for all trials at once)"
    return told + ("" if gain.low > 0 else ": chance may do as much, more --prompts tell more")
