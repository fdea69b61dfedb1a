"""``cog corpus duplicates``: an id goes in, documents that repeat an earlier one come out."""

from dataclasses import asdict, replace

import click

from cog.cli.main import get_project
from cog.cli.numbers import FiniteRange
from cog.cli.output import echo_json
from cog.registry import load_resolved_card


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
