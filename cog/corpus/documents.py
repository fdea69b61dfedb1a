"""Documents and prompts at rest: records go in and come out of Parquet files, streamed."""

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, fields
from operator import attrgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cog.closing import Closing
from cog.corpus.next_step import name_build
from cog.corpus.report import PrepareReport, parse_report
from cog.errors import CorpusError
from cog.paths import CorpusPaths
from cog.records import Document, Prompt

REPORT_KEY = b"cog"
_SURROGATE = re.compile(r"[\ud800-\udfff]")
ROWS_PER_GROUP = 4096
BYTES_PER_GROUP = 8 << 20  # a row group is closed early, so that memory stays bounded

DOCUMENT_SCHEMA = pa.schema([(field.name, pa.string()) for field in fields(Document)])
PROMPT_SCHEMA = pa.schema(
    [(field.name, pa.int64() if field.type is int else pa.string()) for field in fields(Prompt)]
)


class RecordWriter(Closing):
    """Writes records of one kind to a Parquet file, in row groups of bounded size."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._schema = schema
        self._writer = pq.ParquetWriter(path, schema, compression="zstd")
        self._get_row = attrgetter(*schema.names)
        self._rows: list[tuple[Any, ...]] = []
        self._num_bytes = 0
        self._hash = hashlib.sha256()
        self.num_records = 0

    def close(self) -> None:
        """Close the file."""
        self._writer.close()

    def write(self, record: Document | Prompt) -> None:
        """Append a record."""
        row = self._get_row(record)
        self._rows.append(row)
        self.num_records += 1
        encoded = _encode_row(row)
        self._hash.update(encoded)
        self._num_bytes += len(encoded)
        if len(self._rows) >= ROWS_PER_GROUP or self._num_bytes >= BYTES_PER_GROUP:
            self._flush()

    def digest(self) -> str:
        """sha256 over every field of every record so far, each with its length."""
        return self._hash.hexdigest()

    def finish(self, report: PrepareReport | None) -> None:
        """Write what is left, and the report into the file's metadata; nothing may follow."""
        self._flush()
        if report is not None:
            self._writer.add_key_value_metadata({REPORT_KEY.decode(): report.to_json()})

    def _flush(self) -> None:
        if self._rows:
            columns = zip(*self._rows, strict=True)
            self._writer.write_table(
                pa.Table.from_arrays(
                    [
                        pa.array(column, field.type)
                        for column, field in zip(columns, self._schema, strict=True)
                    ],
                    schema=self._schema,
                )
            )
        self._rows = []
        self._num_bytes = 0


class DocumentStore:
    """The documents of a prepared corpus; a file that ``prepare`` did not write is refused."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = _open_parquet(path, DOCUMENT_SCHEMA)

    @property
    def num_documents(self) -> int:
        """Number of documents."""
        return int(self._file.metadata.num_rows)

    def iter_documents(self, batch_size: int = 256) -> Iterator[Document]:
        """Stream the documents in order."""
        # One row group at a time: a batch may not reach over several, each with a long document.
        for group in range(self._file.num_row_groups):
            for batch in self._file.iter_batches(batch_size=batch_size, row_groups=[group]):
                for row in batch.to_pylist():
                    yield Document(**row)

    def iter_ids(self) -> Iterator[str]:
        """Stream the ids of the documents in order."""
        for batch in self._file.iter_batches(columns=["document_id"]):
            yield from batch.column(0).to_pylist()

    def iter_titles(self, text: str) -> Iterator[tuple[str, str]]:
        """Find ids and titles of documents whose title, text or id holds a text."""
        columns = ["document_id", "title", *(["text"] if text else [])]
        for batch in self._file.iter_batches(batch_size=256, columns=columns):
            for row in batch.to_pylist():
                if any(text in value for value in row.values()):
                    yield row["document_id"], row["title"]

    def get_document(self, document_id: str) -> Document:
        """Find a document by its id; one that is not there is refused."""
        # what a shell passes on may be no text at all, and then no document has it
        is_text = document_id.isascii() or not _SURROGATE.search(document_id)
        for group in range(self._file.num_row_groups if is_text else 0):
            ids = self._file.read_row_group(group, columns=["document_id"]).column(0)
            position = ids.index(pa.scalar(document_id, pa.string())).as_py()
            if position >= 0:
                row = self._file.read_row_group(group).slice(position, 1).to_pylist()[0]
                return Document(**row)
        corpus_id = self.path.parent.name
        prompts = load_prompts(self.path.with_name(CorpusPaths(self.path.parent).prompts.name))
        num_prompts = sum(prompt.document_id == document_id for prompt in prompts)
        raise CorpusError(
            f"{corpus_id} must hold the document asked for",
            found=f"{document_id!r} is held out, for {num_prompts} prompts"
            if num_prompts
            else f"no document {document_id!r}",
            run=f"cog corpus documents {corpus_id}",
        )

    def load_report(self) -> PrepareReport:
        """Read what preparing the corpus did."""
        metadata = self._file.metadata.metadata or {}
        return parse_report(metadata.get(REPORT_KEY, b"null"), self.path)


def documents_digest(path: Path) -> str:
    """Read the digest of the documents."""
    return DocumentStore(path).load_report().digest


def find_documents_digest(corpus_paths: CorpusPaths) -> str | None:
    """Read the digest of the documents; None for a corpus that is not prepared here."""
    documents = corpus_paths.documents
    return documents_digest(documents) if documents.is_file() else None


def digest_records(records: Iterable[Document | Prompt]) -> str:
    """sha256 over every field of every record, each with its length."""
    digest = hashlib.sha256()
    for record in records:
        digest.update(_encode_row(asdict(record).values()))
    return digest.hexdigest()


NO_PROMPTS = "holds out no prompt (prompts.held_out in its card, prepare in params.yaml)"


def load_prompts(path: Path, *, at_most: int | None = None) -> list[Prompt]:
    """Read the held-out prompts in order, all or the first."""
    file = _open_parquet(path, PROMPT_SCHEMA)
    if at_most is None:
        return [Prompt(**row) for row in file.read().to_pylist()]
    first = next(file.iter_batches(at_most), None)
    return [] if first is None else [Prompt(**row) for row in first.to_pylist()]


def _encode_row(row: Iterable[Any]) -> bytes:
    pieces: list[bytes] = []
    for value in row:
        encoded = str(value).encode("utf-8")
        pieces += (len(encoded).to_bytes(8, "little"), encoded)
    return b"".join(pieces)


def _open_parquet(path: Path, schema: pa.Schema) -> pq.ParquetFile:
    corpus_id = path.parent.name
    if not path.is_file():
        raise CorpusError(
            f"corpus {corpus_id} needs {path.name}",
            found="no such file",
            run=name_build(CorpusPaths(path.parent), until="prepare"),
        )
    whose, run = f"{path.name} of {corpus_id} must", f"cog corpus prepare {corpus_id}"
    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise CorpusError(f"{whose} be a Parquet file", found=str(error), run=run) from error
    found = file.schema_arrow.names
    if found != schema.names:
        raise CorpusError(f"{whose} have the columns {schema.names}", found=str(found), run=run)
    return file
