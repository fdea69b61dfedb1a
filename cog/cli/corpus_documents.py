"""``cog corpus documents``, ``duplicates``, ``stats``: an id goes in, what is there comes out."""

from dataclasses import asdict, replace
from typing import Any

import click

from cog.cli.main import get_project, get_project_of
from cog.cli.options import FiniteRange
from cog.cli.output import echo_json
from cog.registry import load_resolved_card

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


@click.command("documents")
@click.argument("corpus_id", metavar="ID")
@click.option("--grep", "text", default="", metavar="TEXT", help="Only documents that hold it.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
@click.pass_context
def list_documents(ctx: click.Context, corpus_id: str, text: str, as_json: bool) -> None:
    """List the documents of a prepared corpus: ids and titles; - marks those that give prompts."""
    from cog.corpus.documents import DocumentStore, load_prompts

    corpus = get_project_of(ctx, corpus_id).corpus(corpus_id)
    store = DocumentStore(corpus.documents)
    held_out: dict[str, str] = {}
    for prompt in load_prompts(corpus.prompts):
        held_out[prompt.document_id] = held_out.get(prompt.document_id, prompt.document_id)
        held_out[prompt.document_id] += f"\n{prompt.prefix}{prompt.reference}"
    rows = [(each, title, False) for each, title in store.iter_titles(text)]
    rows += [(each, "", True) for each, whole in held_out.items() if text in whole]
    for document_id, title, is_held_out in rows:
        if as_json:
            echo_json({"document_id": document_id, "title": title, "is_held_out": is_held_out})
        else:
            shown = title if title != document_id else ""
            click.echo(f"{'-' if is_held_out else ' '} {document_id}  {shown}".rstrip())


@click.command("duplicates")
@click.argument("corpus_id", metavar="ID")
@click.option(
    "--threshold",
    type=FiniteRange(0.5, 1.0),
    help="Similarity of near duplicates.  [default: the card's]",
)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    help="Documents to name; 0 for all.",
)
@click.option("--json", "as_json", is_flag=True, help="Write JSON to stdout.")
@click.pass_context
def show_duplicates(
    ctx: click.Context, corpus_id: str, threshold: float | None, limit: int, as_json: bool
) -> None:
    """Find documents of a prepared corpus that repeat an earlier one, exactly or nearly."""
    from cog.corpus.duplicates import find_duplicates

    paths = get_project(ctx)
    card = load_resolved_card(paths, corpus_id)
    assert card.filters is not None
    used = card.filters.near_threshold if threshold is None else threshold
    report = find_duplicates(paths.corpus(corpus_id).documents, threshold=used)
    named = report.repetitions[: limit or None]
    if as_json:
        echo_json({"corpus": corpus_id, **asdict(replace(report, repetitions=named))}, indent=2)
        return
    for each in named:
        click.echo(f"{each.similarity:.3f}  {each.document_id}  repeats  {each.original_id}")
    click.echo(
        f"{report.num_documents} documents of {corpus_id}: {report.num_exact} repeat an earlier"
        f" text exactly, {report.num_near} nearly (from {used})"
    )
    if report.repetitions:
        setting = "near" if report.num_near else "exact"
        click.echo(f"next: set deduplicate: {setting} in the card to leave them out", err=True)
