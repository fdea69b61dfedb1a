"""Rows that are read are those that were asked for, in the order that was asked for."""

from pathlib import Path

import numpy as np
import pytest

from cog.errors import IndexMismatchError
from cog.index.read.reader import open_index
from cog.index.tables.store import (
    CHUNKS,
    DOCUMENTS,
    ID_COLUMNS,
    TABLES,
    WORDS,
    StoreReader,
    StoreWriter,
    get_schemas,
)
from cog.paths import CorpusPaths
from tests.index.hash_model import build


class Backwards:
    """A table whose takes come in the other order, as Lance may give them."""

    def __init__(self, table: object) -> None:
        self._table = table
        self.num_takes = 0

    def take(self, rows: np.ndarray, *, columns: list[str] | None) -> object:
        self.num_takes += 1
        return self._table.take(rows[::-1], columns=columns)  # type: ignore[attr-defined]


def open_tables(corpus: CorpusPaths) -> tuple[Path, StoreReader]:
    folder = corpus.index / build(corpus).manifest.folder
    return folder, StoreReader(folder, "tiny")


def copy_tables(source: StoreReader, folder: Path, *, swapped: str) -> StoreReader:
    """Write the tables again, two rows of one of them in each other's place."""
    dim = next(source.iter_rows(CHUNKS)).schema.field("vector").type.list_size
    writer = StoreWriter(folder, schemas=get_schemas(dim))
    for table in TABLES:
        rows = source.take(table, np.arange(source.count_rows(table)))
        order = np.arange(rows.num_rows)
        if table == swapped:
            order[[1, 2]] = [2, 1]
        writer.write(table, rows.take(order).combine_chunks().to_batches()[0])
    return StoreReader(folder, "tiny")


@pytest.mark.parametrize("table", TABLES)
def test_rows_that_come_in_another_order_are_put_in_order(corpus: CorpusPaths, table: str) -> None:
    _, store = open_tables(corpus)
    positions = np.array([0, 3, 7, 30])
    wanted = store.take(table, positions)
    backwards = store._tables[table] = Backwards(store._tables[table])
    assert store.take(table, positions).equals(wanted)
    column = wanted.column_names[-1]
    assert store.take(table, positions, columns=[column]).equals(wanted.select([column]))
    assert backwards.num_takes == 2


@pytest.mark.parametrize("table", TABLES)
def test_other_rows_than_those_asked_for_are_refused(
    corpus: CorpusPaths, tmp_path: Path, table: str
) -> None:
    _, whole = open_tables(corpus)
    store = copy_tables(whole, tmp_path / "swapped", swapped=table)
    assert store.take(table, np.array([0, 3])).num_rows == 2
    with pytest.raises(IndexMismatchError, match=f"needs 2 rows of {table}; found: other rows"):
        store.take(table, np.array([1, 3]))
    with pytest.raises(IndexMismatchError, match="row 0 of .*, and what follows; found: other"):
        list(store.iter_rows(table, columns=whole.take(table, np.array([0])).column_names[-1:]))


def test_a_whole_table_is_read_in_order_however_many_files_it_has(
    corpus: CorpusPaths, tmp_path: Path
) -> None:
    _, whole = open_tables(corpus)
    writer = StoreWriter(tmp_path / "many", schemas=get_schemas(12))
    documents = whole.take(DOCUMENTS, np.arange(whole.count_rows(DOCUMENTS))).to_batches()[0]
    for start in range(0, documents.num_rows, 3):
        writer.write(DOCUMENTS, documents.slice(start, 3))
    store = StoreReader(tmp_path / "many", "tiny")
    found = [row for batch in store.iter_rows(DOCUMENTS) for row in batch.to_pylist()]
    assert found == documents.to_pylist()


def test_an_index_whose_chunks_are_in_another_order_is_refused_as_it_is_opened(
    corpus: CorpusPaths, tmp_path: Path
) -> None:
    # a chunk's row is its id for the search, for licences and for its words
    folder, whole = open_tables(corpus)
    copy_tables(whole, tmp_path / "swapped", swapped=CHUNKS)
    (folder / "chunks.lance").rename(tmp_path / "old")
    (tmp_path / "swapped" / "chunks.lance").rename(folder / "chunks.lance")
    text = corpus.manifest.read_text().replace('"files": {', '"files": {}, "unused": {')
    corpus.manifest.write_text(text)
    with pytest.raises(IndexMismatchError):
        open_index(corpus)


def test_every_table_has_its_column_of_positions() -> None:
    assert set(ID_COLUMNS) == set(TABLES) == {DOCUMENTS, CHUNKS, WORDS}
