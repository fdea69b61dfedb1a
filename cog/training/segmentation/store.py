"""Segments at rest: phrases of documents go in and come out of a Parquet file, streamed."""

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from cog.atomic import share
from cog.errors import CorpusError

REPORT_KEY = b"cog"
PHRASE_COLUMNS = (
    "char_start",
    "char_end",
    "num_words",
    "source_document_id",
    "source_char_start",
    "source_char_end",
)
PHRASE_FIELDS = [
    pa.field(name, pa.string() if name.endswith("_id") else pa.int32(), nullable=False)
    for name in PHRASE_COLUMNS
]
SCHEMA = pa.schema(
    [
        pa.field("document_id", pa.string(), nullable=False),
        pa.field("num_words", pa.int32(), nullable=False),
        pa.field("phrases", pa.list_(pa.struct(PHRASE_FIELDS)), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class SegmentReport:
    """What segmenting a corpus found.

    :param corpus: Corpus id.
    :param source: ``corpus`` (every other document) or ``retrieved`` (the nearest chunks).
    :param top_k_documents: Number of chunks each chunk was matched with; 0 for all.
    :param model: Fingerprint of the model whose words these are.
    :param documents_digest: Digest of the documents.
    :param index_digest: Digest of the index whose vectors were searched; empty if none was.
    :param min_phrase_words: Number of words of a phrase, at least.
    :param max_phrase_words: Number of words of a phrase, at most.
    :param num_documents: Number of documents.
    :param num_words: Number of words.
    :param num_phrases: Number of phrases.
    :param copied_words: Number of words that lie in phrases.
    :param lengths: Number of phrases by their number of words, as text.
    :param digest: sha256 of the segments in order.
    """

    corpus: str
    source: str
    top_k_documents: int
    model: str
    documents_digest: str
    index_digest: str
    min_phrase_words: int
    max_phrase_words: int
    num_documents: int
    num_words: int
    num_phrases: int
    copied_words: int
    lengths: dict[str, int]
    digest: str

    @property
    def copied_share(self) -> float:
        """Share of words that lie in phrases.

        :returns: From 0 to 1; 0 where there are no words.
        """
        return self.copied_words / self.num_words if self.num_words else 0.0


@dataclass(frozen=True, slots=True)
class Phrase:
    """A phrase of a document, and where it can be copied from.

    :param char_start: Its first character in the document.
    :param char_end: One past its last character.
    :param num_words: Its number of words.
    :param source_document_id: Another document that holds it.
    :param source_char_start: Its first character there.
    :param source_char_end: One past its last character there.
    """

    char_start: int
    char_end: int
    num_words: int
    source_document_id: str
    source_char_start: int
    source_char_end: int


@dataclass(frozen=True, slots=True)
class DocumentSegments:
    """The phrases of a document; what lies between them is written from the vocabulary.

    :param document_id: The document.
    :param num_words: Its number of words.
    :param phrases: Its phrases from left to right.
    """

    document_id: str
    num_words: int
    phrases: tuple[Phrase, ...]


@dataclass(frozen=True, slots=True)
class SegmentBlock:
    """The phrases of some documents, as arrays.

    :param document_ids: The documents.
    :param num_words: Their numbers of words. *Shape:* ``(num_documents,)`` int32
    :param offsets: Phrases of document ``i`` are ``[offsets[i], offsets[i + 1])``.
        *Shape:* ``(num_documents + 1,)`` int32
    :param places: First character and one past the last, number of words, first character and one
        past the last in the source. *Shape:* ``(num_phrases, 5)`` int32
    :param source_document_ids: Document of each source.
    """

    document_ids: list[str]
    num_words: NDArray[np.int32]
    offsets: NDArray[np.int32]
    places: NDArray[np.int32]
    source_document_ids: pa.StringArray


class SegmentWriter:
    """Writes segments to a file that appears only when it is whole.

    :param path: The file; its folder must be there.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        os.close(descriptor)
        self._temporary = Path(name)
        self._writer = pq.ParquetWriter(self._temporary, SCHEMA, compression="zstd")
        self._hashes = {name: hashlib.sha256() for name in ("ids", "counts", "sources", "places")}
        self._is_whole = False

    def __enter__(self) -> "SegmentWriter":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._writer.close()
        if kind is None and self._is_whole:
            share(self._temporary)
            self._temporary.replace(self._path)
        else:
            self._temporary.unlink(missing_ok=True)

    def write(self, block: SegmentBlock) -> None:
        """Append the segments of documents.

        :param block: The segments.
        """
        numbers = [pa.array(block.places[:, column]) for column in range(5)]
        columns = [*numbers[:3], block.source_document_ids, *numbers[3:]]
        phrases = pa.StructArray.from_arrays(columns, fields=PHRASE_FIELDS)
        arrays = [
            pa.array(block.document_ids, pa.string()),
            pa.array(block.num_words),
            pa.ListArray.from_arrays(pa.array(block.offsets), phrases),
        ]
        self._writer.write_batch(pa.record_batch(arrays, schema=SCHEMA))
        self._hash_texts("ids", block.document_ids)
        self._hash_texts("sources", block.source_document_ids.to_pylist())
        counts = np.stack([block.num_words, np.diff(block.offsets)], axis=1)
        for name, array in (("counts", counts), ("places", block.places)):
            self._hashes[name].update(np.ascontiguousarray(array, dtype="<i4").tobytes())

    def digest(self) -> str:
        """Digest what was written so far.

        :returns: sha256 over every field of every row.
        """
        parts = "".join(each.hexdigest() for each in self._hashes.values())
        return hashlib.sha256(parts.encode()).hexdigest()

    def finish(self, report: SegmentReport) -> None:
        """Add the report; the file is put in place when the block ends.

        :param report: The report, kept in the file's metadata.
        """
        content = json.dumps(asdict(report), sort_keys=True)
        self._writer.add_key_value_metadata({REPORT_KEY.decode(): content})
        self._is_whole = True

    def _hash_texts(self, name: str, texts: list[str]) -> None:
        encoded = [text.encode("utf-8") for text in texts]
        parts = (len(each).to_bytes(8, "little") + each for each in encoded)
        self._hashes[name].update(b"".join(parts))


def load_segment_report(path: Path) -> SegmentReport:
    """Read what segmenting a corpus found.

    :param path: ``segments.parquet`` of the corpus.
    :returns: The report.
    :raises CorpusError: If the file is missing or not what ``cog segment`` writes.
    """
    metadata = _open(path).metadata.metadata or {}
    try:
        return SegmentReport(**json.loads(metadata[REPORT_KEY]))
    except (KeyError, TypeError, ValueError) as error:
        raise _refuse(path, str(error)) from error


def iter_segments(path: Path) -> Iterator[DocumentSegments]:
    """Stream the segments of a corpus.

    :param path: ``segments.parquet`` of the corpus.
    :yields: Segments by document, in the order of the documents.
    :raises CorpusError: If the file is missing or not what ``cog segment`` writes.
    """
    for batch in _open(path).iter_batches(batch_size=256):
        for row in batch.to_pylist():
            phrases: list[dict[str, Any]] = row["phrases"]
            yield DocumentSegments(
                row["document_id"], row["num_words"], tuple(Phrase(**each) for each in phrases)
            )


def _open(path: Path) -> pq.ParquetFile:
    if not path.is_file():
        raise _refuse(path, "no such file")
    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise _refuse(path, str(error)) from error
    if file.schema_arrow.names != SCHEMA.names:
        raise _refuse(path, f"the columns {file.schema_arrow.names}")
    return file


def _refuse(path: Path, found: str) -> CorpusError:
    corpus_id = path.parent.name
    return CorpusError(
        f"corpus {corpus_id} needs the segments that cog segment writes to {path.name}",
        found=found,
        run=f"cog segment --corpus {corpus_id}",
        about=corpus_id,
    )
