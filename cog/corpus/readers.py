"""Raw files of any kind become documents: a card and raw files go in, found documents come out."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

from cog.cards import Card, Fields, Format
from cog.corpus.decoding import (
    MAX_DOCUMENT_CHARACTERS,
    Line,
    RawFile,
    choose_encoding,
    iter_lines,
)
from cog.corpus.reassembly import iter_units
from cog.corpus.rows import Row, iter_rows
from cog.corpus.tally import Tally
from cog.records import Document

MAX_ID_CHARACTERS = 512

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Layout:
    """How files are read: the card's format, or its ``local`` form.

    :param kind: As ``format.kind``.
    :param documents: As ``format.documents``.
    :param heading: As ``format.heading``.
    """

    kind: str
    documents: str
    heading: str | None


def iter_found(
    card: Card, files: Sequence[RawFile], *, layout: Layout, tally: Tally
) -> Iterator[Document]:
    """Read documents out of raw files, as they are there: not normalised and not filtered.

    :param card: The card with everything filled in.
    :param files: The raw files in order.
    :param layout: How they are read.
    :param tally: Where what cannot be used is counted.
    :yields: Documents whose texts hold neither NUL nor a lone surrogate.
    :raises CorpusError: If a file, or a record with ``on_error: fail``, cannot be used.
    """
    assert card.format is not None
    for file in files:
        if layout.documents == "row":
            found = _iter_row_documents(file, card.format, layout=layout, tally=tally)
        else:
            found = _iter_unit_documents(file, card.format, layout=layout, tally=tally)
        for document in found:
            problem = find_problem(document)
            if problem is None:
                yield document
            else:
                tally.reject(document.source, problem)


def find_problem(document: Document) -> str | None:
    """Find what makes a document unusable, whatever the card says.

    :param document: The document.
    :returns: One clause, or None if nothing does.
    """
    identity = document.document_id
    if not identity.strip() or len(identity) > MAX_ID_CHARACTERS or _CONTROL.search(identity):
        return f"an id has 1 to {MAX_ID_CHARACTERS} printable characters, not {identity[:40]!r}"
    for name in ("document_id", "title", "text", "url", "licence"):
        value = getattr(document, name)
        if "\x00" in value:
            position = value.index("\x00")
            return f"NUL at character {position} of the {name} (a UTF-16 file? see format.encoding)"
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as error:
            return f"lone surrogate U+{ord(value[error.start]):04X} in the {name}"
    return None


def _iter_row_documents(
    file: RawFile, card_format: Format, *, layout: Layout, tally: Tally
) -> Iterator[Document]:
    for row in iter_rows(file, layout.kind, card_format=card_format, tally=tally):
        source = f"{file.name}:{row.number}"
        try:
            document = _read_row(row, card_format.fields, file=file, source=source)
        except _FieldError as error:
            tally.reject(source, str(error))
            continue
        if len(document.text) > MAX_DOCUMENT_CHARACTERS:
            tally.reject(source, f"over {MAX_DOCUMENT_CHARACTERS} characters", reason="too-long")
        else:
            yield document


def _iter_unit_documents(
    file: RawFile, card_format: Format, *, layout: Layout, tally: Tally
) -> Iterator[Document]:
    if layout.kind == "text":
        encoding = choose_encoding(file, card_format.encoding, tally=tally)
        lines = iter_lines(file, encoding, tally=tally)
    else:
        lines = _iter_row_lines(file, card_format, layout=layout, tally=tally)
    for unit in iter_units(lines, documents=layout.documents, heading=layout.heading):
        source = f"{file.name}:{unit.number}"
        if unit.is_oversized:
            problem = f"over {MAX_DOCUMENT_CHARACTERS} characters (format.documents: another rule?)"
            tally.reject(source, problem, reason="too-long")
            continue
        default = file.stem if layout.documents == "file" else f"{file.stem}:{unit.number}"
        yield Document(unit.key or default, unit.title, unit.text, "", "", source)


def _iter_row_lines(
    file: RawFile, card_format: Format, *, layout: Layout, tally: Tally
) -> Iterator[Line]:
    for row in iter_rows(file, layout.kind, card_format=card_format, tally=tally):
        try:
            text = _join_texts(row.values, card_format.fields.text, glue="\n")
        except _FieldError as error:
            tally.reject(f"{file.name}:{row.number}", str(error))
            continue
        for piece in text.removesuffix("\n").split("\n"):
            yield Line(row.number, piece)


class _FieldError(Exception):
    """A field of a row cannot be used."""


def _read_row(row: Row, fields: Fields, *, file: RawFile, source: str) -> Document:
    values = row.values
    return Document(
        document_id=_join_ids(values, fields.id) if fields.id else f"{file.stem}:{row.number}",
        title=_join_optional(values, fields.title, glue=", "),
        text=_join_texts(values, fields.text, glue="\n"),
        url=_join_optional(values, fields.url, glue=""),
        licence=_join_optional(values, fields.licence, glue=" "),
        source=source,
    )


def _join_texts(values: dict[str, Any], names: Sequence[str], *, glue: str) -> str:
    parts = []
    for name in names:
        if name not in values:
            raise _FieldError(f"field {name!r} is missing")
        value = values[name]
        if not isinstance(value, str):
            kind = "null" if value is None else type(value).__name__
            raise _FieldError(f"field {name!r} must be a text, not {kind}")
        parts.append(value)
    return glue.join(parts)


def _join_ids(values: dict[str, Any], names: Sequence[str]) -> str:
    parts = []
    for name in names:
        value = values.get(name)
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            kind = "missing" if name not in values else "null" if value is None else repr(value)
            raise _FieldError(f"field {name!r} must be an id, not {kind}")
        parts.append(str(value))
    return "/".join(parts)


def _join_optional(values: dict[str, Any], names: Sequence[str], *, glue: str) -> str:
    found = (values.get(name) for name in names)
    return glue.join(str(value) for value in found if value is not None and value != "")


def fill_in(document: Document, card: Card) -> Document:
    """Fill in what a document takes from its card.

    :param document: A document with its final id and title.
    :param card: The card with everything filled in.
    :returns: The document with an address, if the card has a template, and a licence.
    """
    assert card.format is not None
    url = document.url
    if not url and card.format.url:
        title = quote(document.title.replace(" ", "_"), safe="/:(),")
        url = card.format.url.replace("{title}", title)
        url = url.replace("{id}", quote(document.document_id, safe="/:(),"))
    return replace(document, url=url, licence=document.licence or card.licence.id)
