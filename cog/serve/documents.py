"""``/documents``: a corpus, a version and an id go in; the document comes out, or a part of it."""

from dataclasses import asdict
from typing import Any

from starlette.requests import Request

from cog.corpus.documents import DocumentStore
from cog.decoding.licences import CopyRule
from cog.errors import CorpusError, RequestError
from cog.index.versions.unions import split_union
from cog.records import Document
from cog.registry import load_card
from cog.serve.engine import Engine


def tell_document(engine: Engine, request: Request) -> dict[str, Any]:
    """A document of ``/documents/{corpus}/{document_id}``, or ``/documents/{corpus}?id=``."""
    names = request.path_params
    document_id = names.get("document_id") or request.query_params.get("id")
    if not document_id:
        raise RequestError("id must name a document", found="none", about="id")
    part = [read_number(request, name) for name in ("start", "end")]
    digest = request.query_params.get("index")
    document = find_document(engine, names["corpus"], document_id, digest=digest)
    return _cut(document, names["corpus"], digest, *part)


def read_number(request: Request, name: str) -> int | None:
    """Read a whole number from 0 on out of an address; None if there is none."""
    text = request.query_params.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 16):
        wanted = f"{name} must be a whole number from 0"
        raise RequestError(wanted, found=repr(text[:80]), about=name)
    return int(text)


def find_document(
    engine: Engine, corpus_id: str, document_id: str, *, digest: str | None
) -> Document:
    """Find a document of a corpus, or of a union that holds it.

    Of the version with this digest, or its beginning; without one as documents are prepared now.
    """
    parts = split_union(corpus_id)
    for part in parts:
        load_card(engine.paths, part)
    if digest is None:
        problem: CorpusError | None = None
        for part in parts:
            try:
                return DocumentStore(engine.paths.corpus(part).documents).get_document(document_id)
            except CorpusError as error:
                problem = problem or error
        assert problem is not None
        raise problem
    version = engine.indexes.resolve(corpus_id, digest)
    generator = engine.indexes.open(version, CopyRule())
    try:
        found = generator.index.find_document(document_id)
    finally:
        engine.indexes.release(version)
    if found is None:
        raise CorpusError(
            f"index {digest[:16]} of {corpus_id} must hold the document asked for",
            found=f"no document {document_id[:80]!r}",
            run="take document_id, corpus and index from one text",
            about=document_id,
        )
    return found


def _cut(
    document: Document, corpus_id: str, digest: str | None, start: int | None, end: int | None
) -> dict[str, Any]:
    num_characters = len(document.text)
    first = min(start or 0, num_characters)
    last = num_characters if end is None else max(first, min(end, num_characters))
    return {
        "corpus": corpus_id,
        "index": digest,
        **asdict(document),
        "text": document.text[first:last],
        "char_start": first,
        "char_end": last,
        "num_characters": num_characters,
    }
