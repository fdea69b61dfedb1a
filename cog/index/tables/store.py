"""LanceDB's tables: rows in canonical order go in, rows by position come out.

They are written and read by Lance, the library below LanceDB: the same rows as fast, and its import
takes a third of the time. It runs threads of its own and does not survive a fork: a process that
needs it is spawned.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cog.errors import IndexMismatchError
from cog.index.records import LISTS
from cog.index.versions.folders import get_folder_bytes
from cog.index.versions.manifest import mismatch

DOCUMENTS = "documents"
CHUNKS = "chunks"
WORDS = "words"
LICENCE = "licence"  # columns that chunks are filtered by
DOCUMENT = "document_ordinal"
TABLES = (DOCUMENTS, CHUNKS, WORDS)
# what one row holds differs by orders of magnitude; this keeps a batch near 20 MB
ROWS_PER_BATCH = {DOCUMENTS: 1024, CHUNKS: 16384, WORDS: 256}
ID_COLUMNS = {DOCUMENTS: "ordinal", CHUNKS: "chunk_id", WORDS: "chunk_id"}  # positions of rows
INDEX_CACHE_BYTES = 64 << 20  # lists that were read
METADATA_CACHE_BYTES = 64 << 20  # where rows lie in files
REMOTE_GAP_BYTES = 256 << 10  # between rows that one request reads: it takes as long as another
SCAN_BYTES = 128 << 20  # that a scan reads ahead; 2 GB unless told
READAHEAD = 2  # batches of a scan that are read before they are asked for
# vectors do not compress, and plain pages are what a take reads fastest
PLAIN = {"lance-encoding:compression": "none"}


def get_schemas(
    retriever_dim: int, *, vector_type: pa.DataType | None = None
) -> dict[str, pa.Schema]:
    """The columns of every table."""
    texts = ("document_id", "title", "text", "url", "licence", "source")
    blobs = (
        "start_vectors",
        "end_vectors",
        "start_scales",
        "end_scales",
        "word_flags",
        "word_hashes",
        "word_chars",
        "word_tokens",
        "token_ids",
    )
    chunk_columns = [_column("chunk_id", pa.int64()), _column("document_ordinal", pa.int64())]
    return {
        DOCUMENTS: pa.schema(
            [_column("ordinal", pa.int64()), *(_column(name, pa.large_string()) for name in texts)]
        ),
        CHUNKS: pa.schema(
            [
                *chunk_columns,
                _column("char_start", pa.int32()),
                _column("char_end", pa.int32()),
                _column("num_words", pa.int32()),
                _column("num_tokens", pa.int32()),
                _column("content_hash", pa.large_binary()),
                _column("vectors_hash", pa.uint64()),
                _column(
                    "vector",
                    pa.list_(pa.field("item", vector_type or pa.float32(), False), retriever_dim),
                ),
            ]
        ),
        WORDS: pa.schema(
            [
                *chunk_columns,
                *(pa.field(name, pa.large_binary(), False, metadata=PLAIN) for name in blobs),
            ]
        ),
    }


def _column(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


class StoreWriter:
    """Writes the tables of one version folder, which is empty or missing."""

    def __init__(self, folder: Path, *, schemas: Mapping[str, pa.Schema]) -> None:
        os.environ.setdefault("LANCE_DEFAULT_IO_BUFFER_SIZE", str(SCAN_BYTES))  # read at import
        import lance

        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._tables = {
            name: lance.write_dataset(schema.empty_table(), folder / f"{name}.lance")
            for name, schema in schemas.items()
        }

    def write(self, table: str, batch: pa.RecordBatch) -> None:
        """Append rows in canonical order; one commit."""
        if batch.num_rows:
            self._tables[table].insert(batch)

    def compact(self) -> None:
        """Leave each table with its rows in few files, in order, and one version.

        Pages are copied as they are: decoding them again takes twice as long, and memory that grows
        with the corpus.
        """
        for rows in self._tables.values():
            rows.optimize.compact_files(compaction_mode="try_binary_copy", num_threads=1)
            rows.cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)

    def get_sizes(self) -> dict[str, int]:
        """Bytes on disk, by table."""
        return {name: get_folder_bytes(self._folder / f"{name}.lance") for name in TABLES}


class StoreReader:
    """Reads the tables of one version folder; where it is not here, from an object store's address.

    A table that is missing or damaged is an ``IndexMismatchError``.
    """

    def __init__(self, folder: Path, corpus_id: str, *, uri: str = "") -> None:
        self._corpus_id = corpus_id
        self._uri = uri
        self.is_remote = not folder.is_dir() and bool(uri)
        with self._refusing("tables"):
            self._tables = {name: self._open(folder, name) for name in TABLES}
            self._num_rows = {name: table.count_rows() for name, table in self._tables.items()}

    def count_rows(self, table: str) -> int:
        """Number of rows of a table."""
        return int(self._num_rows[table])

    def take(
        self, table: str, positions: NDArray[np.int64], *, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """Read rows by position, in ascending order, each once: all columns, or some.

        Gives one chunk of memory per column. A damaged table is an ``IndexMismatchError``.
        """
        key = ID_COLUMNS[table]
        with self._refusing(table):
            names = None if columns is None else list(dict.fromkeys([*columns, key]))
            rows = self._tables[table].take(positions, columns=names)
        # Lance promises no order of what is taken
        ids = rows.column(key).to_numpy()
        if not np.array_equal(ids, positions):
            order = np.argsort(ids, kind="stable")
            if not np.array_equal(ids[order], positions):
                raise self.refuse(f"{len(positions)} rows of {table}", "other rows")
            rows = rows.take(order)
        return rows.select(list(columns or rows.column_names)).combine_chunks()

    def iter_rows(
        self, table: str, *, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Read a whole table in canonical order, in bounded memory.

        Raises ``IndexMismatchError`` if it is damaged, or its rows are in another order.
        """
        key, start = ID_COLUMNS[table], 0
        names = None if columns is None else list(dict.fromkeys([*columns, key]))
        with self._refusing(table):
            scanner = self._tables[table].scanner(
                columns=names,
                batch_size=ROWS_PER_BATCH[table],
                batch_readahead=READAHEAD,
                fragment_readahead=1,
                scan_in_order=True,
            )
            batches = scanner.to_batches()
        while True:
            with self._refusing(table):
                batch = next(batches, None)
            if batch is None:
                break
            wanted = np.arange(start, start + batch.num_rows)
            if not np.array_equal(batch.column(key).to_numpy(), wanted):
                raise self.refuse(f"row {start} of {table}, and what follows", "other rows")
            start += batch.num_rows
            yield batch.select(list(columns or batch.schema.names))
        if start != self._num_rows[table]:
            raise self.refuse(f"{self._num_rows[table]} rows of {table}", f"{start} rows")

    def find_rows(self, table: str, condition: str, *, columns: Sequence[str]) -> pa.Table:
        """Read the rows that a condition in SQL holds for, by an index over its columns if any."""
        with self._refusing(table):
            return self._tables[table].to_table(columns=list(columns), filter=condition)

    def count_matches(self, table: str, condition: str) -> int:
        """Number of rows that a condition in SQL holds for."""
        with self._refusing(table):
            return int(self._tables[table].count_rows(condition))

    def count_listed(self) -> int:
        """Number of chunks in the lists of the chunks table; 0 if it has none."""
        with self._refusing(CHUNKS):
            indices = self._tables[CHUNKS].describe_indices()
        return sum(each.num_rows_indexed for each in indices if each.name == LISTS)

    def find_nearest(
        self, vectors: NDArray[np.float32], top_k: int, num_probes: int, condition: str
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Find the chunks with the largest inner products, of those that a condition holds for.

        Reads the ``num_probes`` lists that lie nearest, or every chunk if that is 0. Gives
        positions, best first, -1 where lists ran short, and the products.
        *Shape:* ``(batch, top_k)``
        """
        rows = np.full((len(vectors), top_k), -1, dtype=np.int64)
        scores = np.full((len(vectors), top_k), -np.inf, dtype=np.float32)
        how = {"nprobes": num_probes} if num_probes else {"use_index": False, "metric": "dot"}
        for number, vector in enumerate(vectors):
            with self._refusing(CHUNKS):
                found = self._tables[CHUNKS].to_table(
                    columns=["_distance"],
                    nearest={"column": "vector", "q": vector, "k": top_k} | how,
                    filter=condition or None,
                    prefilter=True,
                    with_row_id=True,
                )
            rows[number, : found.num_rows] = self._locate_rows(found.column("_rowid").to_numpy())
            scores[number, : found.num_rows] = 1.0 - found.column("_distance").to_numpy()
        return rows, scores

    def _locate_rows(self, row_ids: NDArray[np.uint64]) -> NDArray[np.int64]:
        # a row id says the fragment, and the position in it
        firsts = self._chunk_firsts
        fragments = (row_ids >> np.uint64(32)).tolist()
        inside = (row_ids & np.uint64(0xFFFFFFFF)).astype(np.int64)
        return np.array([firsts[each] for each in fragments], dtype=np.int64) + inside

    def _open(self, folder: Path, table: str) -> Any:  # noqa: ANN401
        import lance

        if not self.is_remote:
            return lance.dataset(folder / f"{table}.lance", session=self._session)
        from cog.index.versions.remote import get_storage_options

        address = f"{self._uri}/{self._corpus_id}/{folder.name}/{table}.lance"
        return lance.dataset(
            address,
            session=self._session,
            storage_options=get_storage_options(),
            block_size=REMOTE_GAP_BYTES,
        )

    @cached_property
    def _chunk_firsts(self) -> dict[int, int]:
        # position of the first chunk of each fragment; an index that is open does not change
        firsts, start = {}, 0
        for fragment in self._tables[CHUNKS].get_fragments():
            firsts[fragment.fragment_id] = start
            start += fragment.physical_rows
        return firsts

    @cached_property
    def _session(self) -> Any:  # noqa: ANN401
        # what all tables keep in memory, which would grow to gigabytes
        import lance

        return lance.Session(  # type: ignore[attr-defined]
            index_cache_size_bytes=INDEX_CACHE_BYTES, metadata_cache_size_bytes=METADATA_CACHE_BYTES
        )

    @contextmanager
    def _refusing(self, what: str) -> Iterator[None]:
        # Lance reports damage as many kinds of exceptions, some of which are Rust panics
        try:
            yield
        except (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError):
            raise
        except BaseException as error:
            if self.is_remote:
                from cog.index.versions.remote import unreachable

                raise unreachable(self._corpus_id, self._uri, error) from error
            detail = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
            raise self.refuse(f"readable {what}", detail) from error

    def refuse(self, wanted: str, found: str) -> IndexMismatchError:
        """The error that refuses it."""
        return mismatch(self._corpus_id, wanted, found, force=True)


def connect(folder: Path) -> Any:  # noqa: ANN401
    """Open the tables of a version folder with LanceDB, which an extra brings."""
    os.environ.setdefault("LANCEDB_LOG", "error")  # read once, at import
    import lancedb

    return lancedb.connect(str(folder))
