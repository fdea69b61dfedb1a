"""Rows of jsonl, json, csv, parquet and sqlite files: a raw file goes in, a stream comes out."""

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cog.cards import Format
from cog.corpus.decoding import (
    MAX_LINE_CHARACTERS,
    RawFile,
    choose_encoding,
    iter_decoded,
    iter_records,
)
from cog.corpus.json_stream import JsonError, iter_items
from cog.corpus.schema import build_object, find_mismatch, find_missing, list_read
from cog.corpus.sources import strip_packing
from cog.corpus.tally import Tally
from cog.errors import CorpusError

TOO_LONG = f"over {MAX_LINE_CHARACTERS} characters"


@dataclass(frozen=True, slots=True)
class Row:
    """One row, object or record."""

    number: int  # number of its first line (jsonl, csv), or of itself (json, parquet, sqlite)
    # columns or keys and what they hold; None if it is empty, or there are none to be had
    values: dict[str, Any] | None
    problem: str = ""  # what makes it unusable; empty if nothing does
    reason: str = "malformed"  # which the problem counts as


def iter_rows(file: RawFile, kind: str, *, card_format: Format, tally: Tally) -> Iterator[Row]:
    """Stream the rows of a file that fit the card's schema."""
    is_typed = kind != "csv"
    num_rows = 0
    for row in _open_rows(file, kind, card_format=card_format, tally=tally):
        num_rows += 1
        where, problem = f"{file.name}:{row.number}", row.problem
        if not problem and row.values is not None:
            problem = find_mismatch(row.values, card_format, is_typed=is_typed) or ""
        if problem:
            tally.reject(where, problem, reason=row.reason)
        elif row.values is None:
            tally.skip("empty", where)
        else:
            yield row
    if num_rows == 0:
        tally.notes.append(f"{file.name} holds no rows")


def check_columns(file: RawFile, found: list[str], card_format: Format) -> None:
    """Refuse a file in which a column of the card is missing, or stands more than once."""
    missing = find_missing(card_format, found)
    repeated = next((name for name in list_read(card_format) if found.count(name) > 1), None)
    if missing is None and repeated is None:
        return
    wanted = f"have the column {missing!r}" if missing else f"have {repeated!r} only once"
    raise CorpusError(
        f"{file.name} must {wanted}",
        found=", ".join(map(str, found))[:200] or "no columns",
        run="name another with --text-field and the like (format.fields in the card),"
        " or mark it with ? in format.schema",
    )


def _open_rows(file: RawFile, kind: str, *, card_format: Format, tally: Tally) -> Iterator[Row]:
    if kind == "parquet":
        from cog.corpus.tables import iter_parquet

        return iter_parquet(file, card_format)
    if kind == "sqlite":
        from cog.corpus.tables import iter_sqlite

        return iter_sqlite(file, card_format)
    encoding = choose_encoding(file, card_format.encoding, tally=tally)
    reader = {"jsonl": _iter_jsonl, "json": _iter_json, "csv": _iter_csv}[kind]
    return reader(file, encoding, card_format, tally)


def _iter_jsonl(file: RawFile, encoding: str, _: Format, tally: Tally) -> Iterator[Row]:
    decoder = json.JSONDecoder(object_pairs_hook=build_object)
    for number, text in iter_records(file, encoding, tally=tally):
        if text is None:
            yield Row(number, None, TOO_LONG, reason="too-long")
        elif not text.strip():
            yield Row(number, None)
        else:
            try:
                yield _make_row(number, decoder.decode(text))
            except (ValueError, RecursionError) as error:
                yield Row(number, None, f"not JSON: {error}")


def _iter_json(file: RawFile, encoding: str, _: Format, tally: Tally) -> Iterator[Row]:
    try:
        items = iter_items(iter_decoded(file, encoding, tally=tally))
        for number, values in enumerate(items, start=1):
            yield _make_row(number, values)
    except JsonError as error:
        raise CorpusError(f"{file.name} must be JSON", found=str(error)) from None


def _make_row(number: int, values: object) -> Row:
    if isinstance(values, dict):
        return Row(number, values)
    return Row(number, None, f"an object is needed, not {type(values).__name__}")


def _iter_csv(file: RawFile, encoding: str, card_format: Format, tally: Tally) -> Iterator[Row]:
    csv.field_size_limit(MAX_LINE_CHARACTERS)
    delimiter = "\t" if strip_packing(file.name).lower().endswith(".tsv") else ","
    lines = _iter_csv_lines(file, encoding, tally=tally)
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    header: list[str] | None = None
    while True:
        number = reader.line_num + 1  # a record is found where it begins, however many lines it has
        try:
            cells = next(reader, None)
        except csv.Error as error:
            # A row with a stray quotation mark is one bad row; one that is never closed has
            # swallowed all that follows.
            if header is None or not str(error).startswith(f"'{delimiter}' expected"):
                raise _not_csv(file, number, str(error)) from None
            yield Row(number, None, f"not CSV: {error}")
            continue
        if cells is None:
            return
        if header is None:
            header = cells
            check_columns(file, header, card_format)
        elif not cells:
            yield Row(number, None)
        elif len(cells) != len(header):
            yield Row(number, None, f"{len(cells)} cells under {len(header)} columns")
        else:
            yield Row(number, dict(zip(header, cells, strict=True)))


def _iter_csv_lines(file: RawFile, encoding: str, *, tally: Tally) -> Iterator[str]:
    # A field may hold line breaks, so the reader gets lines with their ends.
    for number, text in iter_records(file, encoding, tally=tally):
        if text is None:
            raise _not_csv(file, number, TOO_LONG)
        yield f"{text}\n"


def _not_csv(file: RawFile, number: int, found: str) -> CorpusError:
    where = f"{file.name}:{number}"
    return CorpusError(f"{where} must be CSV", found=found)
