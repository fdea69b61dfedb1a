"""Rows of Parquet and SQLite files: a raw file goes in, rows come out, streamed."""

import sqlite3
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cog.cards import Format
from cog.corpus.decoding import RawFile
from cog.corpus.rows import Row, check_columns
from cog.corpus.schema import list_read
from cog.errors import CorpusError

ROWS_PER_BATCH = 64
READ_BYTES = 1 << 22  # read ahead in a column, which may be larger than memory
SECONDS_PER_ROW = 600  # that a query may think: sorts of whole tables take minutes
STEPS_PER_LOOK = 100_000  # of SQLite's machine, between two looks at the clock

_READING = frozenset(
    (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)
)
_MORE_THAN_READING = "a query that does more than read this file"
_REFUSED = {  # what SQLite says, and what it means here
    "not authorized": _MORE_THAN_READING,
    "authorization denied": _MORE_THAN_READING,
    "interrupted": f"no further row within {SECONDS_PER_ROW} s: a query without an end?",
}


def iter_parquet(file: RawFile, card_format: Format) -> Iterator[Row]:
    """Stream the rows of a Parquet file, numbered from 1."""
    number = 0
    try:
        with pq.ParquetFile(file.path, buffer_size=READ_BYTES, pre_buffer=False) as table:
            check_columns(file, table.schema_arrow.names, card_format)
            there = set(table.schema_arrow.names)
            read = list_read(card_format)
            columns = [name for name in read if not there.isdisjoint((name, name.split(".")[0]))]
            for batch in table.iter_batches(batch_size=ROWS_PER_BATCH, columns=columns):
                for values in batch.to_pylist():
                    number += 1
                    yield Row(number, values)
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise CorpusError(
            f"{file.name} must be a Parquet file",
            found=f"after row {number}: {error}",
            run="fetch or copy it again, or set format.kind in the card",
        ) from None


def iter_sqlite(file: RawFile, card_format: Format) -> Iterator[Row]:
    """Stream what the card's query finds in a SQLite file, numbered; texts must be UTF-8."""
    number = 0
    # Opened read-only and as immutable: nothing is written beside the raw file.
    address = f"{file.path.resolve().as_uri()}?mode=ro&immutable=1"
    max_rows = file.path.stat().st_size  # no row takes less than a byte
    try:
        connection = sqlite3.connect(address, uri=True)
        connection.text_factory = _decode
        connection.set_authorizer(_authorise)
        try:
            _limit_seconds(connection)
            cursor = connection.execute(card_format.query or "")
            columns = [_name(column[0]) for column in cursor.description or ()]
            check_columns(file, columns, card_format)
            wanted = [columns.index(name) for name in list_read(card_format) if name in columns]
            for cells in cursor:
                number += 1
                if number > max_rows:
                    raise ValueError("more rows than the file has bytes: a query without an end?")
                bad = [columns[place] for place in wanted if isinstance(cells[place], _Undecoded)]
                problem = f"bytes that are not UTF-8 in {bad[0]!r}" if bad else ""
                yield Row(number, dict(zip(columns, cells, strict=True)), problem)
                _limit_seconds(connection)
        finally:
            connection.close()
    except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
        found = _REFUSED.get(str(error), str(error))
        raise CorpusError(
            f"{file.name} must be a SQLite database that format.query fits",
            found=f"after row {number}: {found}",
            run="mend format.query in the card",
        ) from None


def _authorise(action: int, table: str | None, *_: str | None) -> int:
    # A card comes from anybody: ATTACH and VACUUM INTO would write wherever this process may.
    # Tables that a function makes (json_each) are declared by an update of the schema in memory.
    is_declared = action == sqlite3.SQLITE_UPDATE and table == "sqlite_master"
    return sqlite3.SQLITE_OK if action in _READING or is_declared else sqlite3.SQLITE_DENY


def _limit_seconds(connection: sqlite3.Connection) -> None:
    last = time.monotonic() + SECONDS_PER_ROW
    connection.set_progress_handler(lambda: time.monotonic() > last, STEPS_PER_LOOK)


class _Undecoded(bytes):
    """A text of a database that is not UTF-8."""


def _decode(value: bytes) -> str | _Undecoded:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return _Undecoded(value)


def _name(column: Any) -> str:  # noqa: ANN401
    return column if isinstance(column, str) else repr(column)
