"""``cog corpus stats``: a corpus id goes in; counts of its documents and its index come out."""

from typing import Any

import click

from cog.cli.main import get_project
from cog.cli.output import echo_json

STATED = {
    "frequent_words": "most frequent words",
    "most": "most informative of the frequent phrases",
    "least": "least informative of the frequent phrases",
}


@click.command("stats")
@click.argument("corpus_id", metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="Write JSON to stdout.")
@click.pass_context
def show_stats(ctx: click.Context, corpus_id: str, as_json: bool) -> None:
    """Count a prepared corpus: documents, words, what was skipped; and words of its index."""
    from cog.index.read.corpus_stats import measure_stats

    found = measure_stats(get_project(ctx), corpus_id)
    for note in found.notes:
        click.echo(note, err=True)
    if as_json:
        echo_json(found.to_json(), indent=2)
        return
    figures, information = found.figures, found.information
    echo_nested(figures)
    for name in ("frequent_words", "most", "least") if information else ():
        click.echo(f"{STATED[name]}:")
        for phrase in getattr(information, name):
            click.echo(f"  {phrase.bits:5.1f} bits  {phrase.count:6} x  {phrase.text}")
    for each in figures["suitability"]["warnings"]:
        click.echo(f"warning: {each}", err=True)


def echo_nested(values: dict[str, Any], indent: str = "") -> None:
    """Write values by name, what is nested below its name."""
    for key, value in values.items():
        if isinstance(value, dict):
            click.echo(f"{indent}{key}:")
            echo_nested(value, f"{indent}  ")
        else:
            click.echo(f"{indent}{key}: {'-' if value is None else value}")
