"""``cog paper datastore``: a prepared corpus goes in, what kNN-LM searches comes out."""

from dataclasses import asdict

import click

from cog.cli.main import open_project
from cog.cli.options import device_option, json_option
from cog.cli.output import echo_json


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
    from cog.baselines.project import build_corpus_datastore
    from cog.corpus.documents import DocumentStore
    from cog.progress import show_progress

    total = DocumentStore(paths.corpus(corpus_id).documents).num_documents
    with show_progress(f"datastore {corpus_id}", total=total, unit="documents") as progress:
        manifest = build_corpus_datastore(
            paths, corpus_id, params=params, progress=progress, device=device
        )
    _write(asdict(manifest), as_json=as_json)


@command.command("info")
@click.argument("corpus_id", metavar="ID")
@json_option
@click.pass_context
def info(ctx: click.Context, /, corpus_id: str, *, as_json: bool) -> None:
    """Say what a corpus's datastore holds and how it is searched."""
    paths, params = open_project(ctx, corpus_id)
    from cog.baselines.manifest import load_corpus_manifest
    from cog.model.fingerprint import fingerprint_model

    fingerprint = fingerprint_model(paths.model(params.model))
    manifest = load_corpus_manifest(paths, corpus_id, model=fingerprint)
    _write(asdict(manifest), as_json=as_json)


def _write(content: dict[str, object], *, as_json: bool) -> None:
    if as_json:
        echo_json(content)
        return
    search = content["search"]
    assert isinstance(search, dict)
    click.echo(f"corpus    {content['corpus']}")
    click.echo(f"digest    {str(content['digest'])[:16]}")
    click.echo(f"model     {str(content['model'])[:16]}")
    click.echo(f"entries   {content['num_entries']:,} of width {content['dim']}")
    click.echo(
        f"search    {search['kind']}, recall {search['recall']:.3f} at {search['recall_at']}"
    )
