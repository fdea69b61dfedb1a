"""``cog corpus versions`` and ``diff``: an id goes in, its versions or what differs come out."""

from dataclasses import asdict

import click

from cog.cli.main import get_project_of, open_project
from cog.cli.options import json_option
from cog.cli.output import echo_json, tell
from cog.params import load_params

MAX_NAMED = 10  # documents of a kind that are named where people read


@click.command("versions")
@click.argument("corpus_id", metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array.")
@click.pass_context
def versions(ctx: click.Context, corpus_id: str, as_json: bool) -> None:
    """List the built versions of a corpus: digest, git revision, counts, and where each is."""
    from cog.corpus.next_step import name_build
    from cog.index.versions.resolve import KEPT, list_versions

    paths = get_project_of(ctx, corpus_id)
    found = list_versions(paths, corpus_id)
    if as_json:
        echo_json([asdict(each) for each in found])
        return
    if any(KEPT in each.where for each in found):
        num_last = load_params(paths.params).index.keep_versions
        click.echo(
            f"{KEPT}: switched on, what a rollback goes back to, and the last {num_last} others "
            "that were replaced (index.keep_versions)",
            err=True,
        )
    if not found:
        click.echo(
            f"no version of {corpus_id} is built; next: {name_build(paths.corpus(corpus_id))}"
        )
    for each in found:
        mark = "*" if each.is_active else " "
        digest = each.digest[:16] if each.digest else "(in a remote)"
        revision = each.revision[:10] if each.revision else "-"
        counts = f"{each.documents} documents, {each.words} units" if each.digest else "?"
        when = each.built_at or each.committed_at or "-"
        click.echo(
            f"{mark} {digest:<16}  {revision:<10}  {when:<25}  {counts}  {', '.join(each.where)}"
        )


@click.command("diff")
@click.argument("corpus_id", metavar="ID")
@click.argument("before", metavar="[A]", required=False)
@click.argument("after", metavar="[B]", required=False)
@json_option
@click.pass_context
def diff(
    ctx: click.Context, corpus_id: str, before: str | None, after: str | None, as_json: bool
) -> None:
    """Compare two versions of a corpus, by default its index and its prepared documents.

    A and B are digests, beginnings of digests, or git revisions; B may be `prepared`.
    """
    from cog.index.read.diff import compare_versions

    paths, params = open_project(ctx, corpus_id)
    found = compare_versions(paths, corpus_id, params=params, before=before, after=after, say=tell)
    if as_json:
        echo_json(asdict(found))
        return
    first = f"index {found.before[:16]}" if found.before else "no index"
    second = f"{'prepared documents' if found.is_prepared else 'index'} {found.after[:16]}"
    share = 100 * found.num_encoded / max(1, found.num_chunks)
    old, new = found.words
    click.echo(f"{found.corpus}: {first} -> {second}")
    click.echo(
        f"documents  {len(found.added)} added, {len(found.removed)} removed, "
        f"{len(found.changed)} changed, {found.num_same} the same"
    )
    click.echo(f"units      {old} -> {new} ({new - old:+d})")
    for name, (num_before, num_after) in found.licences.items():
        click.echo(f"licence    {name or '(none)'}: {num_before} -> {num_after} documents")
    reason = f": {found.reason}" if found.reason else ""
    click.echo(
        f"chunks     {found.num_encoded} of {found.num_chunks} must be encoded "
        f"({share:.1f} %){reason}"
    )
    for mark, ids in (("+", found.added), ("-", found.removed), ("~", found.changed)):
        for each in ids[:MAX_NAMED]:
            click.echo(f"{mark} {each}")
        if len(ids) > MAX_NAMED:
            click.echo(f"{mark} and {len(ids) - MAX_NAMED} more")
