"""``cog paper datastore``: a prepared corpus goes in, what kNN-LM searches comes out."""

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from cog.cli.main import open_project
from cog.cli.options import device_option, json_option
from cog.cli.output import echo_result, format_lines

if TYPE_CHECKING:
    from cog.baselines.manifest import DatastoreManifest


@click.group("datastore")
def command() -> None:
    """Build and look at the datastores of kNN-LM, a baseline."""


@command.command("build")
@click.argument("corpus_id", metavar="ID")
@device_option
@json_option
@click.pass_context
def build(ctx: click.Context, /, corpus_id: str, device: str, *, as_json: bool) -> None:
    """Encode every token of a corpus and store hidden state and next token."""
    paths, params = open_project(ctx, corpus_id)
    from cog.baselines.datastore import build_corpus_datastore
    from cog.corpus.documents import DocumentStore
    from cog.progress import show_progress

    total = DocumentStore(paths.corpus(corpus_id).documents).num_documents
    with show_progress(f"datastore {corpus_id}", total=total, unit="documents") as progress:
        manifest = build_corpus_datastore(
            paths, corpus_id, params=params, progress=progress, device=device
        )
    _write(manifest, as_json=as_json)


@command.command("info")
@click.argument("corpus_id", metavar="ID")
@json_option
@click.pass_context
def info(ctx: click.Context, /, corpus_id: str, *, as_json: bool) -> None:
    """Say what a corpus's datastore holds and how it is searched."""
    paths, params = open_project(ctx, corpus_id)
    from cog.baselines.manifest import load_datastore_manifest
    from cog.model.fingerprint import fingerprint_model

    fingerprint = fingerprint_model(paths.model(params.model))
    manifest = load_datastore_manifest(paths, corpus_id, model=fingerprint)
    _write(manifest, as_json=as_json)


def _write(manifest: "DatastoreManifest", *, as_json: bool) -> None:
    search = manifest.search
    lines = {
        "corpus": manifest.corpus,
        "digest": manifest.digest[:16],
        "model": manifest.model[:16],
        "entries": f"{manifest.num_entries:,} of width {manifest.dim}",
        "search": f"{search['kind']}, recall {search['recall']:.3f} at {search['recall_at']}",
    }
    echo_result(asdict(manifest), format_lines(lines), as_json=as_json)
