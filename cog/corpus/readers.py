"""Raw files of any kind become documents: a card and raw files go in, found documents come out."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from cog.cards import Card, Fields, Format, LocalFormat
from cog.corpus.decoding import BYTE_ORDER_MARK, Line, RawFile, choose_encoding, iter_lines
from cog.corpus.pages import read_page
from cog.corpus.parts import iter_parts, name_part
from cog.corpus.reassembly import iter_units
from cog.corpus.rows import Row, iter_rows
from cog.corpus.schema import find_value, list_nullable
from cog.corpus.sources import is_html
from cog.corpus.tally import Tally
from cog.records import Document

MAX_ID_CHARACTERS = 512
CUT = "documents that are too long for one are cut into parts"

_MISSING = object()
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def iter_found(
    card: Card, files: Sequence[RawFile], *, layout: LocalFormat, tally: Tally
) -> Iterator[Document]:
    """Read the documents of raw files as they are; NUL and lone surrogates are refused."""
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
    """Find what makes a document unusable, whatever the card says."""
    identity = document.document_id
    if not identity.strip() or len(identity) > MAX_ID_CHARACTERS or _CONTROL.search(identity):
        return f"an id has 1 to {MAX_ID_CHARACTERS} printable characters, not {identity[:40]!r}"
    for name in ("document_id", "title", "text", "url", "licence"):
        value = getattr(document, name)
        if "\x00" not in value and value.isascii():
            continue
        if "\x00" in value:
            position = value.index("\x00")
            return f"NUL at character {position} of the {name} (a UTF-16 file? see format.encoding)"
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as error:
            return f"lone surrogate U+{ord(value[error.start]):04X} in the {name}"
    return None


def _iter_row_documents(
    file: RawFile, card_format: Format, *, layout: LocalFormat, tally: Tally
) -> Iterator[Document]:
    reader = _FieldReader(card_format, tally)
    for row in iter_rows(file, layout.kind, card_format=card_format, tally=tally):
        source = f"{file.name}:{row.number}"
        try:
            document = reader.read(row, file=file, source=source)
        except _FieldError as error:
            tally.reject(source, str(error))
            continue
        for number, part in enumerate(iter_parts(document)):
            if number == 1:
                tally.count(CUT)
            yield part


def _iter_unit_documents(
    file: RawFile, card_format: Format, *, layout: LocalFormat, tally: Tally
) -> Iterator[Document]:
    page_title = ""
    if layout.kind == "text":
        encoding = choose_encoding(file, card_format.encoding, tally=tally)
        if is_html(file.name):
            page_title, lines = read_page(file, encoding, tally=tally)
        else:
            lines = iter_lines(file, encoding, tally=tally)
    else:
        lines = _iter_row_lines(file, card_format, layout=layout, tally=tally)
    first_number = 0
    for unit in iter_units(lines, documents=layout.documents, heading=layout.heading):
        if unit.part == 1:
            tally.count(CUT)
        if unit.part <= 1:
            first_number = unit.number
        default = file.stem if layout.documents == "file" else f"{file.stem}:{first_number}"
        document_id = name_part(unit.key or default, unit.part)
        source = f"{file.name}:{unit.number}"
        yield Document(document_id, unit.title or page_title, unit.text, "", "", source)


def _iter_row_lines(
    file: RawFile, card_format: Format, *, layout: LocalFormat, tally: Tally
) -> Iterator[Line]:
    reader = _FieldReader(card_format, tally)
    for row in iter_rows(file, layout.kind, card_format=card_format, tally=tally):
        try:
            text = reader.join_texts(row.values or {})
        except _FieldError as error:
            tally.reject(f"{file.name}:{row.number}", str(error))
            continue
        for piece in text.removesuffix("\n").split("\n"):
            yield Line(row.number, piece)


class _FieldError(Exception):
    """A field of a row cannot be used."""


class _FieldReader:
    """Reads the fields of a card out of rows."""

    def __init__(self, card_format: Format, tally: Tally) -> None:
        self._fields: Fields = card_format.fields
        self._nullable = list_nullable(card_format)
        self._tally = tally

    def read(self, row: Row, *, file: RawFile, source: str) -> Document:
        """Make a document of a row."""
        values, fields = row.values or {}, self._fields
        return Document(
            document_id=self._join_ids(values) if fields.id else f"{file.stem}:{row.number}",
            title=_join_optional(values, fields.title, glue=", "),
            text=self.join_texts(values),
            url=_join_optional(values, fields.url, glue=""),
            licence=_join_optional(values, fields.licence, glue=" "),
            source=source,
        )

    def join_texts(self, values: dict[str, Any]) -> str:
        """Join the fields of the text; empty if all of them may be missing and are."""
        pieces: list[str] = []
        for name in self._fields.text:
            value = find_value(values, name)
            if isinstance(value, str):
                pieces.append(value)
            elif isinstance(value, list) and all(isinstance(each, str) for each in value):
                pieces += value
            elif name not in self._nullable or value is not None:
                raise _FieldError(_word_problem(values, name, value))
        if pieces and pieces[0].startswith(BYTE_ORDER_MARK):
            pieces[0] = pieces[0].removeprefix(BYTE_ORDER_MARK)
            self._tally.count("byte-order marks stripped from the beginning of texts")
        return "\n".join(pieces)

    def _join_ids(self, values: dict[str, Any]) -> str:
        parts = []
        for name in self._fields.id:
            value = find_value(values, name)
            if isinstance(value, bool) or not isinstance(value, (str, int)):
                kind = "missing" if find_value(values, name, _MISSING) is _MISSING else "null"
                kind = kind if value is None else repr(value)[:80]
                raise _FieldError(f"field {name!r} must be an id, not {kind}")
            parts.append(str(value))
        return "/".join(parts)


def _word_problem(values: dict[str, Any], name: str, value: object) -> str:
    if find_value(values, name, _MISSING) is _MISSING:
        there = ", ".join(map(str, values))[:200] or "nothing"
        return (
            f"field {name!r} is missing among {there} (say which holds the text: --text-field, or "
            "format.fields.text)"
        )
    return f"field {name!r} must be a text, not {'null' if value is None else type(value).__name__}"


def _join_optional(values: dict[str, Any], names: Sequence[str], *, glue: str) -> str:
    found = (find_value(values, name) for name in names)
    return glue.join(str(value) for value in found if value is not None and value != "")


def fill_in(document: Document, card: Card) -> Document:
    """Fill in the address, by the card's template, and the licence that a document lacks."""
    assert card.format is not None
    url = document.url
    if not url and card.format.url:
        title = quote(document.title.replace(" ", "_"), safe="/:(),")
        url = card.format.url.replace("{title}", title)
        url = url.replace("{id}", quote(document.document_id, safe="/:(),"))
    licence = document.licence or card.licence.id
    return replace(document, url=url, licence=licence)
