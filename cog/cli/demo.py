"""``cog demo``: a project goes in; two corpora are built, and texts of both are written."""

import click

from cog.cli.main import cli, get_project, open_project
from cog.progress import show_progress

PREFIXES = {
    "wiki-mini": "The Baltic Sea is",
    "eu-law-mini": "The provider of a high-risk AI system shall",
}
NUM_TOKENS = "64"


@click.command("demo")
@click.pass_context
def command(ctx: click.Context) -> None:
    """Build two small corpora, write with each of them, and switch between them.

    Takes some minutes the first time, and goes on where it was stopped.
    """
    from cog.pipeline import Builder, is_in_pipeline, run_pipeline

    paths, params = open_project(ctx)
    corpus_ids = list(PREFIXES)
    _say(1, f"build {' and '.join(corpus_ids)}: fetch, prepare, index; the next time nothing runs")
    if is_in_pipeline(paths, corpus_ids):
        run_pipeline(paths, [f"index@{each}" for each in corpus_ids])
    else:
        Builder(paths, params, show_progress).build_missing(corpus_ids)
    _say(2, "what there is")
    _run(ctx, "corpus", "list")
    for number, (corpus_id, prefix) in enumerate(PREFIXES.items(), start=3):
        _say(number, f"switch to {corpus_id} and write: the model stays the same")
        _run(ctx, "switch", "--corpus", corpus_id)
        _run(ctx, "generate", "--prefix", prefix, "--max-new-tokens", NUM_TOKENS)
    _say(5, "what is active, and back to what was")
    _run(ctx, "status")
    _run(ctx, "rollback")


def _say(number: int, text: str) -> None:
    click.echo(f"\n== {number}  {text}\n", err=True)


def _run(ctx: click.Context, *words: str) -> None:
    folder = str(get_project(ctx).root)
    shown = " ".join(f'"{word}"' if " " in word else word for word in words)
    click.echo(f"$ cog {shown}", err=True)
    cli.main(["--project", folder, *words], standalone_mode=False)
