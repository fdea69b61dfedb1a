"""``cog switch``: a corpus id goes in, what changed comes out."""

from dataclasses import asdict

import click

from cog.cli.main import get_project
from cog.cli.options import json_option
from cog.cli.output import echo_json, tell
from cog.index.versions.activation import Change, switch_corpus
from cog.index.versions.unions import shorten_digest
from cog.records import Active


@click.command("switch")
@click.argument("given_id", metavar="[ID[+ID]...]", required=False)
@click.option("--corpus", "corpus_id", metavar="ID[+ID]...", help="The same as the argument.")
@click.option("--index", metavar="DIGEST", help="Digest its index must have, or its first digits.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    given_id: str | None,
    corpus_id: str | None,
    index: str | None,
    as_json: bool,
) -> None:
    """Make a corpus and its index the active one, atomically."""
    if (given_id is None) == (corpus_id is None):
        raise click.UsageError("give one corpus: cog switch ID, or --corpus ID")
    chosen = given_id if given_id is not None else str(corpus_id)
    change = switch_corpus(get_project(ctx), chosen, index=index, say=tell)
    print_change(change, as_json=as_json)


def print_change(change: Change, *, as_json: bool) -> None:
    """Print what a switch or a rollback changed."""
    if as_json:
        before = asdict(change.before) if change.before else None
        echo_json({"changed": change.is_change, "from": before, "to": asdict(change.after)})
    elif change.is_change:
        has_model = change.before is not None and change.before.model != change.after.model
        old = _describe(change.before, has_model=has_model)
        new = _describe(change.after, has_model=has_model)
        click.echo(f"{old} -> {new}")
    else:
        click.echo(f"{_describe(change.after, has_model=False)} is active already")


def _describe(active: Active | None, *, has_model: bool) -> str:
    if active is None:
        return "nothing"
    model = f", model {active.model_folder or active.model[:16]}" if has_model else ""
    return f"{active.corpus} (index {shorten_digest(active.index, 16)}{model})"
