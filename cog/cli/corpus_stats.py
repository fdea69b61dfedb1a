"""``cog corpus stats``: a corpus id goes in; counts of its documents and its index come out."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from cog.cli.main import get_project
from cog.errors import AssetError, CheckpointError, IndexingError, IndexNotBuiltError
from cog.paths import ProjectPaths
from cog.registry import load_resolved_card

if TYPE_CHECKING:
    from cog.corpus.suitability import CountPieces
    from cog.index.information import Information

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
    from cog.corpus.stats import measure_corpus

    paths = get_project(ctx)
    card = load_resolved_card(paths, corpus_id)
    figures = measure_corpus(paths, card, count_pieces=_load_piece_counter(paths))
    information = _measure_information(paths, corpus_id)
    if as_json:
        told = asdict(information) if information else None
        click.echo(json.dumps(figures | {"information": told}, ensure_ascii=False, indent=2))
        return
    echo_nested(figures)
    for name in ("frequent_words", "most", "least") if information else ():
        click.echo(f"{STATED[name]}:")
        for phrase in getattr(information, name):
            click.echo(f"  {phrase.bits:5.1f} bits  {phrase.count:6} x  {phrase.text}")
    for each in figures["suitability"]["warnings"]:
        click.echo(f"warning: {each}", err=True)


def _measure_information(paths: ProjectPaths, corpus_id: str) -> "Information | None":
    # of the index in place, whatever documents it was built from
    from cog.index.information import measure_information
    from cog.index.reader import open_index

    try:
        with open_index(paths.corpus(corpus_id), locks=paths.locks) as index:
            return measure_information(index)
    except IndexNotBuiltError:
        return None
    except IndexingError as error:
        click.echo(f"words of the index are not counted: {error}", err=True)
        return None


def _load_piece_counter(paths: ProjectPaths) -> "CountPieces | None":
    # Counts are worth having without the model too.
    from cog.model.piece_counts import load_cutter
    from cog.params import load_params

    try:
        return load_cutter(paths.root / load_params(paths.params).model).count
    except (AssetError, CheckpointError) as error:
        click.echo(f"tokens are not counted: {error}", err=True)
        return None


def echo_nested(values: dict[str, Any], indent: str = "") -> None:
    """Write values by name, what is nested below its name.

    :param values: What to write.
    :param indent: What lines begin with.
    """
    for key, value in values.items():
        if isinstance(value, dict):
            click.echo(f"{indent}{key}:")
            echo_nested(value, f"{indent}  ")
        else:
            click.echo(f"{indent}{key}: {'-' if value is None else value}")
