"""Rows of jsonl, json, csv, parquet and sqlite files: a raw file goes in, a stream comes out."""

import csv
import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cog.cards import Fields, Format
from cog.corpus.decoding import (
    MAX_DOCUMENT_CHARACTERS,
    RawFile,
    choose_encoding,
    iter_decoded,
    iter_lines,
)
from cog.corpus.tally import Tally
from cog.errors import CorpusError

ROWS_PER_BATCH = 256
MAX_JSON_CHARACTERS = 1 << 29  # a json file is read whole; larger ones belong into jsonl
KEY_FIELD = "@key"  # the key of an object in a json mapping


@dataclass(frozen=True, slots=True)
class Row:
    """One row, object or record.

    :param number: Number of its line (jsonl, csv) or of itself (json, parquet, sqlite), from 1.
    :param values: Columns or keys and what they hold.
    """

    number: int
    values: dict[str, Any]


def iter_rows(file: RawFile, kind: str, *, card_format: Format, tally: Tally) -> Iterator[Row]:
    """Stream the rows of a file.

    :param file: The file.
    :param kind: ``jsonl``, ``json``, ``csv``, ``parquet`` or ``sqlite``.
    :param card_format: The card's fields, encodings and query.
    :param tally: Where malformed rows are counted.
    :returns: Rows in the order of the file.
    :raises CorpusError: If the file is not of its kind, or lacks a column.
    """
    if kind == "parquet":
        return _iter_parquet(file, card_format.fields)
    if kind == "sqlite":
        return _iter_sqlite(file, card_format)
    encoding = choose_encoding(file, card_format.encoding, tally=tally)
    reader = {"jsonl": _iter_jsonl, "json": _iter_json, "csv": _iter_csv}[kind]
    return reader(file, encoding, card_format.fields, tally)


def list_columns(fields: Fields) -> list[str]:
    """Name the columns that a card's fields need.

    :param fields: The card's fields.
    :returns: Names without repetition, in the order of the card.
    """
    names = (*fields.id, *fields.title, *fields.text, *fields.url, *fields.licence)
    return list(dict.fromkeys(names))


def _iter_jsonl(file: RawFile, encoding: str, _: Fields, tally: Tally) -> Iterator[Row]:
    for line in iter_lines(file, encoding, tally=tally):
        where = f"{file.name}:{line.number}"
        if line.is_oversized:
            tally.reject(where, f"over {MAX_DOCUMENT_CHARACTERS} characters", reason="too-long")
        elif not line.text.strip():
            tally.skip("empty")
        else:
            try:
                values = json.loads(line.text)
            except (ValueError, RecursionError) as error:
                tally.reject(where, f"not JSON: {error}")
                continue
            yield from _check_object(line.number, values, where=where, tally=tally)


def _iter_json(file: RawFile, encoding: str, _: Fields, tally: Tally) -> Iterator[Row]:
    blocks: list[str] = []
    for block in iter_decoded(file, encoding, tally=tally):
        blocks.append(block)
        if sum(map(len, blocks)) > MAX_JSON_CHARACTERS:
            raise CorpusError(
                f"{file.name}: a json file is read whole, so it must be small",
                found=f"over {MAX_JSON_CHARACTERS} characters",
                run="write one object a line and set format.kind: jsonl",
                about=file.name,
            )
    try:
        content = json.loads("".join(blocks))
    except (ValueError, RecursionError) as error:
        raise CorpusError(f"{file.name} must be JSON", found=str(error), about=file.name) from None
    if isinstance(content, dict):
        content = [
            {KEY_FIELD: key, **value} if isinstance(value, dict) else value
            for key, value in content.items()
        ]
    if not isinstance(content, list):
        raise CorpusError(
            f"{file.name} must be a list of objects or a mapping to objects",
            found=type(content).__name__,
            about=file.name,
        )
    for number, values in enumerate(content, start=1):
        yield from _check_object(number, values, where=f"{file.name}:{number}", tally=tally)


def _check_object(number: int, values: object, *, where: str, tally: Tally) -> Iterator[Row]:
    if isinstance(values, dict):
        yield Row(number, values)
    else:
        tally.reject(where, f"an object is needed, not {type(values).__name__}")


def _iter_csv(file: RawFile, encoding: str, fields: Fields, tally: Tally) -> Iterator[Row]:
    csv.field_size_limit(MAX_DOCUMENT_CHARACTERS)
    # A field may hold line breaks, so the reader gets lines with their ends.
    lines = (f"{line.text}\n" for line in iter_lines(file, encoding, tally=tally))
    reader = csv.reader(lines, delimiter="\t" if ".tsv" in file.name else ",", strict=True)
    try:
        header = next(reader, None)
        if header is None:
            return
        _check_columns(file, header, fields)
        for cells in reader:
            where = f"{file.name}:{reader.line_num}"
            if not cells:
                tally.skip("empty")
            elif len(cells) != len(header):
                tally.reject(where, f"{len(cells)} cells under {len(header)} columns")
            else:
                yield Row(reader.line_num, dict(zip(header, cells, strict=True)))
    except csv.Error as error:
        where = f"{file.name}:{reader.line_num}"
        raise CorpusError(f"{where} must be CSV", found=str(error), about=where) from None


def _iter_parquet(file: RawFile, fields: Fields) -> Iterator[Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = 0
    try:
        table = pq.ParquetFile(file.path)
        _check_columns(file, table.schema_arrow.names, fields)
        columns = list_columns(fields)
        for batch in table.iter_batches(batch_size=ROWS_PER_BATCH, columns=columns):
            for values in batch.to_pylist():
                number += 1
                yield Row(number, values)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise CorpusError(
            f"{file.name} must be a Parquet file",
            found=f"after row {number}: {error}",
            run="fetch or copy it again, or set format.kind in the card",
            about=file.name,
        ) from None


def _iter_sqlite(file: RawFile, card_format: Format) -> Iterator[Row]:
    number = 0
    # Opened read-only and as immutable: nothing is written beside the raw file.
    address = f"{file.path.resolve().as_uri()}?mode=ro&immutable=1"
    try:
        connection = sqlite3.connect(address, uri=True)
        try:
            cursor = connection.execute(card_format.query or "")
            columns = [column[0] for column in cursor.description or ()]
            _check_columns(file, columns, card_format.fields)
            for cells in cursor:
                number += 1
                yield Row(number, dict(zip(columns, cells, strict=True)))
        finally:
            connection.close()
    except (sqlite3.Error, sqlite3.Warning) as error:
        raise CorpusError(
            f"{file.name} must be a SQLite database that format.query fits",
            found=f"after row {number}: {error}",
            run="mend format.query in the card",
            about=file.name,
        ) from None


def _check_columns(file: RawFile, found: Sequence[str], fields: Fields) -> None:
    missing = _first_missing(list_columns(fields), found)
    if missing is not None:
        raise CorpusError(
            f"{file.name} must have the column {missing!r}",
            found=", ".join(found) or "no columns",
            run="set format.fields in the card",
            about=missing,
        )


def _first_missing(wanted: Iterable[str], found: Sequence[str]) -> str | None:
    return next((name for name in wanted if name not in found), None)
