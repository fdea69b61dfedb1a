"""``cog corpus add``: a path, a name or an address and options go in, a card is written."""

from dataclasses import asdict
from pathlib import Path

import click

from cog.cards import DEDUPLICATE, DOCUMENT_RULES, KINDS, ON_ERROR, format_card
from cog.cli.main import get_project
from cog.cli.options import flag, with_record
from cog.cli.output import echo_json
from cog.corpus.new_card import NewCorpus
from cog.paths import ProjectPaths

OPTIONS = {
    "title": flag(help="What a person calls it.  [default: the id]"),
    "description": flag(help="One or two sentences."),
    "language": flag(help="BCP 47 tag."),
    "licence": flag(help="SPDX id or a name."),
    "licence_url": flag(help="Where the terms can be read."),
    "attribution": flag(help="Whom to name."),
    "kind": flag("--format", type=click.Choice(KINDS), help="Told by the files' endings."),
    "encoding": flag(multiple=True, help="Tried in order, or detect; repeatable."),
    "documents": flag(type=click.Choice(DOCUMENT_RULES), help="How lines become documents."),
    "heading": flag(help="'wikitext', or a regular expression with groups title and id."),
    "query": flag(help="SQL whose columns the fields name (sqlite)."),
    "url": flag("--url-template", help="Address with {id} or {title}."),
    "on_error": flag(type=click.Choice(ON_ERROR)),
    "id_field": flag(multiple=True, help="Column or key of the id; repeatable."),
    "title_field": flag(multiple=True, help="Column or key of the title; repeatable."),
    "text_field": flag(multiple=True, help="Column or key of the text; repeatable."),
    "url_field": flag(multiple=True, help="Column or key of the address."),
    "licence_field": flag(multiple=True, help="Column or key of the licence."),
    "members": flag(multiple=True, metavar="GLOB", help="Files of the folder to take; repeatable."),
    "config": flag(help="Configuration of a hub data set."),
    "split": flag(multiple=True, help="Splits of a hub data set."),
    "revision": flag(help="Commit or tag of a hub data set."),
    "normaliser": flag(),
    "min_words": flag(type=int),
    "max_words": flag(type=int),
    "deduplicate": flag(type=click.Choice(DEDUPLICATE)),
    "near_threshold": flag(type=float),
    "schema": flag(multiple=True, metavar="NAME=TYPE", help="Type of a field; repeatable."),
    "held_out": flag(type=float, help="For prompts."),
    "seed": flag(type=int),
    "index_uri": flag(metavar="s3://BUCKET/FOLDER", help="Object store of the index."),
}


@click.command("add")
@click.argument("corpus_id", metavar="ID")
@click.argument("place", metavar="[PATH_OR_HUB_NAME_OR_URL]", required=False)
@with_record("new", NewCorpus, OPTIONS)
@click.option("--json", "as_json", is_flag=True, help="Write JSON to stdout.")
@click.pass_context
def add_corpus(
    ctx: click.Context, /, *, corpus_id: str, place: str | None, new: NewCorpus, as_json: bool
) -> None:
    """Write a card for local files, a hub data set or an address; the pipeline builds it.

    ID alone adds a corpus whose card comes with cog (`cog corpus list --shipped`).
    """
    from cog.corpus import manage
    from cog.corpus.new_card import HUB_PREFIX, build_card
    from cog.corpus.next_step import name_build

    paths = get_project(ctx)
    if place is None:
        _add_shipped(paths, corpus_id)
        return
    card = build_card(corpus_id, place, new, project=paths.root, folder=Path.cwd())
    trial = manage.add_corpus(paths, card)
    if as_json:
        found = asdict(trial) if trial else {"first": None, "files": None}
        content = {"first_document": found["first"], "files": found["files"]}
        echo_json({"card": format_card(card), **content}, indent=2)
        return
    assert card.format is not None
    is_marked = place.startswith(HUB_PREFIX)
    if card.source is not None and card.source.type == "hub" and not is_marked:
        click.echo(f"no such path: taken as the hub data set {card.source.dataset}", err=True)
    click.echo(f"added {card.id}: {card.format.kind}, one document per {card.format.documents}")
    if trial is not None:
        first = trial.first
        click.echo(f"first document: {first.document_id}: {first.text[:60]!r}", err=True)
        click.echo(trial.files.describe())
    click.echo(f"next: {name_build(paths.corpus(card.id))}", err=True)


def _add_shipped(paths: ProjectPaths, corpus_id: str) -> None:
    from cog.corpus.next_step import name_build
    from cog.template import add_shipped

    is_new = add_shipped(paths, corpus_id)
    click.echo(f"{'added' if is_new else 'the pipeline builds'} {corpus_id}")
    click.echo(f"next: {name_build(paths.corpus(corpus_id))}", err=True)
