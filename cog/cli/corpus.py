"""``cog corpus``: ids and options go in, cards, documents and counts come out."""

from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from cog.cards import Card, format_card
from cog.cli.corpus_add import add_corpus
from cog.cli.corpus_versions import diff, versions
from cog.cli.main import get_project, get_project_of, open_project
from cog.cli.options import FiniteRange
from cog.cli.output import echo_json, tell
from cog.errors import RegistryError
from cog.paths import ProjectPaths
from cog.registry import iter_corpus_ids, load_resolved_card

as_json_option = click.option("--json", "as_json", is_flag=True, help="Write JSON to stdout.")
STATED = {
    "frequent_words": "most frequent words",
    "most": "most informative of the frequent phrases",
    "least": "least informative of the frequent phrases",
}


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Cards and documents of the corpora."""


for each in (add_corpus, versions, diff):
    command.add_command(each)


@command.command("list")
@click.option(
    "--shipped", "is_shipped", is_flag=True, help="Those instead whose card comes with cog."
)
@as_json_option
@click.pass_context
def list_corpora(ctx: click.Context, is_shipped: bool, as_json: bool) -> None:
    """List the corpora that have a card in the project."""
    from cog.corpus import listing

    paths = get_project(ctx)
    found = listing.list_shipped(paths) if is_shipped else listing.list_corpora(paths)
    if as_json:
        echo_json([asdict(each) for each in found], indent=2)
        return
    width = max((len(each.id) for each in found), default=2)
    for each in found:
        mark = "*" if each.is_active else " "
        click.echo(f"{mark} {each.id:<{width}}  {each.state:<8}  {each.error or each.title}")
    if is_shipped:
        click.echo("next: cog corpus add ID", err=True)


@command.command("show")
@click.argument("corpus_id", metavar="ID")
@click.option("--document", "document_id", metavar="DOCUMENT_ID", help="Show one document instead.")
@as_json_option
@click.pass_context
def show_corpus(ctx: click.Context, corpus_id: str, document_id: str | None, as_json: bool) -> None:
    """Show the card of a corpus and its counts, or one of its documents."""
    paths = get_project(ctx)
    card = load_resolved_card(paths, corpus_id)
    if document_id is not None:
        _show_document(paths, card, document_id, as_json=as_json)
        return
    from cog.corpus.next_step import name_build
    from cog.corpus.stats import describe_corpus

    description = describe_corpus(paths, card)
    if as_json:
        echo_json(description.to_json(), indent=2)
        return
    echo_nested(format_card(card))
    if description.fetched is not None:
        click.echo(f"fetched: {description.fetched.describe()}")
    if description.prepared is None:
        click.echo(f"not prepared; next: {name_build(paths.corpus(corpus_id))}")
        return
    for line in description.prepared.describe():
        click.echo(line)
    if not paths.corpus(corpus_id).manifest.exists():
        click.echo(f"not indexed; next: {name_build(paths.corpus(corpus_id))}")


def _show_document(paths: ProjectPaths, card: Card, document_id: str, *, as_json: bool) -> None:
    from cog.corpus.documents import DocumentStore

    document = DocumentStore(paths.corpus(card.id).documents).get_document(document_id)
    if as_json:
        echo_json(asdict(document), indent=2)
        return
    for name in ("document_id", "title", "url", "licence", "source"):
        click.echo(f"{name}: {getattr(document, name)}", err=True)
    click.echo(document.text)


@command.command("remove")
@click.argument("corpus_id", metavar="ID")
@click.option("--dry-run", is_flag=True, help="Say only what would go.")
@as_json_option
@click.pass_context
def remove_corpus(ctx: click.Context, corpus_id: str, dry_run: bool, as_json: bool) -> None:
    """Remove a corpus and every trace of it: card, entries, pointers, what was built, caches."""
    from cog.corpus.removal import remove_corpus as remove
    from cog.index.versions.folders import hold_writing
    from cog.locks import find_holder
    from cog.paths import BUILD

    paths = get_project(ctx)
    corpus = paths.corpus(corpus_id)
    holder = find_holder(corpus.lock(BUILD))
    if holder is not None and not dry_run:
        raise RegistryError(
            f"corpus {corpus_id} must not be built while it is removed",
            found=str(holder),
            run=f"wait for it, or stop it, then cog corpus remove {corpus_id}",
        )
    hold = partial(hold_writing, corpus, say=tell)
    gone = remove(paths, corpus_id, is_trial=dry_run, hold=hold)
    if as_json:
        echo_json({"corpus": corpus_id, "removed": gone, "is_dry_run": dry_run}, indent=2)
        return
    for each in gone:
        click.echo(f"{'would remove' if dry_run else 'removed'} {each}")
    if not dry_run:
        kept = "git's commits and what they name in DVC's cache, MLflow's runs, the history"
        click.echo(f"{kept} of switches stay", err=True)


@command.command("validate")
@click.argument("corpus_ids", metavar="[ID]...", nargs=-1)
@as_json_option
@click.pass_context
def validate_corpora(ctx: click.Context, corpus_ids: tuple[str, ...], as_json: bool) -> None:
    """Check cards, raw files and documents of all corpora, or of those named."""
    from cog.corpus import manage

    paths = get_project(ctx)
    ids = corpus_ids or tuple(iter_corpus_ids(paths))
    findings = [each for corpus_id in ids for each in manage.check_corpus(paths, corpus_id)]
    if as_json:
        echo_json([asdict(each) for each in findings], indent=2)
    else:
        for each in findings:
            mark = "ok    " if each.is_ok else "BROKEN"
            click.echo(f"{mark}  {each.corpus}  {each.check}  {each.detail}")
    broken = [each for each in findings if not each.is_ok]
    if broken:
        raise RegistryError(
            "every corpus must be valid",
            found=f"{len(broken)} of {len(findings)} checks failed, first {broken[0].corpus}",
            run=f"cog corpus validate {broken[0].corpus}",
        )


@command.command("fetch")
@click.argument("corpus_id", metavar="ID")
@click.option("--source", type=click.Path(path_type=Path), help="Local file or folder to take.")
@as_json_option
@click.pass_context
def fetch(ctx: click.Context, corpus_id: str, source: Path | None, as_json: bool) -> None:
    """Fetch the raw files of a corpus, from its source or from --source."""
    from cog.pipeline import Builder
    from cog.progress import show_progress

    record = Builder(*open_project(ctx), show_progress, source).fetch(corpus_id)
    if as_json:
        echo_json({"corpus": corpus_id, **asdict(record)}, indent=2)
    else:
        click.echo(f"{corpus_id}: {record.describe()}, from {record.origin}")


@command.command("prepare")
@click.argument("corpus_id", metavar="ID")
@as_json_option
@click.pass_context
def prepare(ctx: click.Context, corpus_id: str, as_json: bool) -> None:
    """Turn the raw files of a corpus into documents and held-out prompts."""
    from cog.pipeline import Builder
    from cog.progress import show_progress

    report = Builder(*open_project(ctx), show_progress).prepare(corpus_id)
    if as_json:
        echo_json(asdict(report), indent=2)
        return
    for line in report.describe():
        click.echo(line)


@command.command("stats")
@click.argument("corpus_id", metavar="ID")
@as_json_option
@click.pass_context
def show_stats(ctx: click.Context, corpus_id: str, as_json: bool) -> None:
    """Count a prepared corpus: documents, words, what was skipped; and words of its index."""
    from cog.index.read.information import measure_stats

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


@command.command("documents")
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


@command.command("duplicates")
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
@as_json_option
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
