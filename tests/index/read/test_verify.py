"""Verifying: changed bytes, wrong offsets, lost and added files are found."""

import json
import shutil
from pathlib import Path

import lancedb
import numpy as np
import pyarrow as pa
import pytest

from cog.errors import IndexMismatchError
from cog.index.read.reader import open_index
from cog.index.read.verify import VerifyReport, verify_index
from cog.index.records import Manifest
from cog.index.tables.store import CHUNKS, DOCUMENTS, WORDS
from cog.index.versions.folders import list_files
from cog.paths import CorpusPaths
from cog.progress import SilentProgress
from tests.index.hash_model import build


@pytest.fixture
def built(corpus: CorpusPaths) -> Manifest:
    return build(corpus).manifest


def verify(corpus: CorpusPaths) -> VerifyReport:
    with open_index(corpus) as index:
        return verify_index(index, progress=SilentProgress())


def test_intact_index_is_counted(corpus: CorpusPaths, built: Manifest) -> None:
    report = verify(corpus)
    assert report.digest == built.digest
    assert (report.num_chunks, report.num_words) == (built.num_chunks, built.num_words)
    assert report.num_documents == 40


def test_any_changed_byte_is_found(corpus: CorpusPaths, built: Manifest) -> None:
    generator = np.random.default_rng(0)
    for name in built.files:
        path = corpus.index / built.folder / name
        content = bytearray(path.read_bytes())
        position = int(generator.integers(len(content)))
        content[position] ^= 0x10
        path.write_bytes(content)
        with pytest.raises(IndexMismatchError, match="cog index build tiny --force"):
            verify(corpus)
        content[position] ^= 0x10
        path.write_bytes(content)
    verify(corpus)


def test_added_file_is_found(corpus: CorpusPaths, built: Manifest) -> None:
    (corpus.index / built.folder / "notes.txt").write_text("mine")
    with pytest.raises(IndexMismatchError, match=r"notes\.txt"):
        verify(corpus)


def rewrite(corpus: CorpusPaths, built: Manifest, table: str, column: str, value: object) -> None:
    """Change the third row of a column, and make the manifest agree with the new files."""
    folder = corpus.index / built.folder
    database = lancedb.connect(str(folder))
    rows = database.open_table(table).to_arrow()
    values = rows.column(column).to_pylist()
    values[2] = value(values[2]) if callable(value) else value
    field = rows.schema.field(column)
    index = rows.schema.get_field_index(column)
    rows = rows.set_column(index, field, pa.array(values, field.type))
    shutil.rmtree(folder / f"{table}.lance")
    database.create_table(table, rows)
    restate(corpus, folder)


def restate(corpus: CorpusPaths, folder: Path) -> None:
    """Make the manifest agree with the files there are."""
    content = json.loads(corpus.manifest.read_text())
    content["files"] = {
        name: {"size_bytes": entry.size_bytes, "sha256": entry.sha256}
        for name, entry in list_files(folder).items()
    }
    corpus.manifest.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("contexts/00000-tokens.npy", "contexts of its rows.*other tokens"),
        ("contexts/00000-order.npy", "contexts of its rows.*other order"),
        ("contexts/00000-chunk_starts.npy", "contexts of its rows.*other chunk_starts"),
        ("word_counts.npy", "word counts of its rows.*other (word_hashes|counts)"),
    ],
)
def test_derived_files_that_do_not_fit_their_rows_are_found(
    corpus: CorpusPaths, built: Manifest, name: str, message: str
) -> None:
    folder = corpus.index / built.folder
    values = np.load(folder / name)
    values[[20, 21]] = values[[21, 20]]
    np.save(folder / name, values)
    restate(corpus, folder)
    with pytest.raises(IndexMismatchError, match=message):
        verify(corpus)


def shift(blob: bytes) -> bytes:
    return (np.frombuffer(blob, np.int32) + 1).astype(np.int32).tobytes()


def move_one_bound(blob: bytes) -> bytes:
    bounds = np.frombuffer(blob, np.int32).copy()
    bounds[3] -= 1
    return bounds.tobytes()


def flip_first_byte(blob: bytes) -> bytes:
    return bytes([blob[0] ^ 1]) + blob[1:]


def spoil_scale(blob: bytes) -> bytes:
    return np.float32(np.nan).tobytes() + blob[4:]


@pytest.mark.parametrize(
    ("table", "column", "value", "message"),
    [
        (WORDS, "word_chars", shift, "reach beyond"),
        (WORDS, "word_chars", move_one_bound, "other words in the text"),
        (WORDS, "word_tokens", shift, "overlap"),
        (WORDS, "word_hashes", flip_first_byte, "other words in the text"),
        (WORDS, "word_flags", lambda blob: bytes(len(blob)), "other flags"),
        (WORDS, "start_vectors", flip_first_byte, "rows of digest"),
        (WORDS, "end_scales", spoil_scale, "finite end_scales"),
        (WORDS, "start_vectors", lambda blob: blob[1:], "bytes of start_vectors"),
        (WORDS, "token_ids", lambda blob: blob[4:], "numbers of tokens"),
        (WORDS, "document_ordinal", 7, "other ids"),
        (CHUNKS, "num_words", 3, "numbers of words"),
        (CHUNKS, "char_start", 1, "reach beyond"),
        (CHUNKS, "vector", [float("inf")] * 12, "finite chunk vectors"),
        (CHUNKS, "vector", [0.5] * 12, "rows of digest"),
        (DOCUMENTS, "title", "Other", "rows of digest"),
        (DOCUMENTS, "text", lambda text: text.replace(" ", "_"), "other words in the text"),
    ],
)
def test_rows_that_do_not_fit_are_found(
    corpus: CorpusPaths,
    built: Manifest,
    table: str,
    column: str,
    value: object,
    message: str,
) -> None:
    rewrite(corpus, built, table, column, value)
    with pytest.raises(IndexMismatchError, match=message):
        verify(corpus)
