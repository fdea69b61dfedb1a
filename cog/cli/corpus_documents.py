"""``cog corpus documents``: a corpus id goes in, ids and titles of its documents come out."""

import click

from cog.cli.main import get_project_of
from cog.cli.output import echo_json


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
