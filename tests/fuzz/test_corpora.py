"""Corpus files of every kind, mended and broken: no traceback, and nothing lost in silence."""

import csv
import gzip
import io
import json
import re
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cog.cards import Card, parse_card
from cog.corpus.documents import DocumentStore, digest_records
from cog.corpus.fetch import fetch_corpus
from cog.corpus.prepare import prepare_corpus
from cog.corpus.report import PrepareReport
from cog.errors import CogError
from cog.model.load import IndexModel, load_index_model
from cog.params import FetchParams, PrepareParams
from cog.paths import CorpusPaths
from cog.progress import SilentProgress
from cog.records import Document
from tests.corpus.building import make_content, tokenise
from tests.fuzz.building import Builds

QUIET: dict[str, Any] = {"suppress_health_check": list(HealthCheck)}

ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32", "latin-1", "cp1252", "detect")
SPACES = "\n\r\t \u0085\u2028\u00a0\u3000"
words = st.text(
    st.characters(codec="utf-8", exclude_characters="\x00\ufeff") | st.sampled_from(SPACES),
    max_size=12,
)
texts = st.lists(
    words | st.sampled_from(["mill", "&amp;", "= Old =", "#", '"', ",", "<unk>"]), max_size=8
).map(" ".join)


@dataclass(frozen=True, slots=True)
class Given:
    """One corpus file and how the card reads it.

    :param name: Name of the file.
    :param content: Its bytes.
    :param card: The card.
    :param count: Number of documents in it, counted without the readers; None if unknown.
    :param letters: Its text without white space, if every document is to be kept.
    """

    name: str
    content: bytes
    card: Card
    count: int | None = None
    letters: str | None = None


def make_card(**changes: Any) -> Card:  # noqa: ANN401
    changes = {"filters": {"min_words": 0, "max_words": None}, "deduplicate": "none", **changes}
    return parse_card(make_content(**changes), "village.yaml")


def split_lines(text: str) -> list[str]:
    lines = re.split("\r\n|\r|\n", text)
    return lines[:-1] if lines[-1] == "" else lines


def get_letters(text: str) -> str:
    return "".join(text.split())


@st.composite
def text_files(draw: st.DrawFn) -> Given:
    """A text file in an encoding that can spell it, by every rule."""
    text = draw(texts)
    encoding = draw(st.sampled_from(("utf-8", "utf-8", "utf-16", "utf-16-be", "utf-32")))
    rule = draw(st.sampled_from(("line", "blank-line", "file", "heading")))
    content = text.encode(encoding)
    content = gzip.compress(content, mtime=0) if draw(st.booleans()) else content
    card = make_card(
        format__encoding=encoding,
        format__documents=rule,
        format__heading=draw(st.sampled_from(["#", "wikitext"])) if rule == "heading" else None,
        normaliser=draw(st.sampled_from(["plain-v1", "plain-v1", "html-v1"])),
    )
    count = {"line": len(split_lines(text)), "file": 1}.get(rule)
    has_all = rule != "heading" and card.normaliser == "plain-v1"
    return Given("a.txt", content, card, count, get_letters(text) if has_all else None)


ROW_FIELDS = {"id": None, "title": "title", "text": "text", "url": None, "licence": None}
cells = texts | st.none() | st.integers(-5, 5) | st.booleans() | st.lists(words, max_size=2)
rows = st.lists(
    st.fixed_dictionaries({"text": texts}, optional={"title": words, "n": st.integers(-9, 9)})
    | st.dictionaries(st.sampled_from(["text", "title", "n"]), cells, max_size=3),
    max_size=6,
)


def write_jsonl(values: list[dict[str, Any]]) -> bytes:
    return "\n".join(json.dumps(row) for row in values).encode()


def write_json(values: list[dict[str, Any]]) -> bytes:
    return json.dumps(values, indent=1).encode()


def write_csv(values: list[dict[str, Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, ["text", "title", "n"], quoting=csv.QUOTE_ALL)
    writer.writeheader()
    writer.writerows(values)
    return text.getvalue().encode()


def write_parquet(values: list[dict[str, Any]]) -> bytes:
    sink = io.BytesIO()
    columns = {
        name: [
            json.dumps(row.get(name))
            if not isinstance(row.get(name), str | None)
            else row.get(name)
            for row in values
        ]
        for name in ("text", "title", "n")
    }
    schema = pa.schema([(name, pa.string()) for name in columns])
    pq.write_table(pa.table(columns, schema=schema), sink)
    return sink.getvalue()


def write_sqlite(values: list[dict[str, Any]]) -> bytes:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE t (text, title, n)")
    cells = [[row.get(name) for name in ("text", "title", "n")] for row in values]
    plain = [
        [json.dumps(cell) if isinstance(cell, list) else cell for cell in row] for row in cells
    ]
    connection.executemany("INSERT INTO t VALUES (?, ?, ?)", plain)
    connection.commit()
    content = connection.serialize()
    connection.close()
    return content


WRITERS: dict[str, tuple[str, Callable[[list[dict[str, Any]]], bytes]]] = {
    "jsonl": ("a.jsonl", write_jsonl),
    "json": ("a.json", write_json),
    "csv": ("a.csv", write_csv),
    "parquet": ("a.parquet", write_parquet),
    "sqlite": ("a.db", write_sqlite),
}


@st.composite
def row_files(draw: st.DrawFn) -> Given:
    """Rows in a file of every kind, some of them not as the card declares them."""
    kind = draw(st.sampled_from(sorted(WRITERS)))
    name, write = WRITERS[kind]
    values = draw(rows)
    schema = draw(
        st.none() | st.just({"text": "text?", "title": "text?"}) | st.just({"n": "integer"})
    )
    card = make_card(
        format__kind=kind,
        format__documents="row",
        format__fields=ROW_FIELDS,
        format__query="SELECT * FROM t" if kind == "sqlite" else None,
        format__on_error="skip",
        format__schema=schema,
        deduplicate=draw(st.sampled_from(["none", "exact", "near"])),
        prompts=draw(st.none() | st.just({"held_out": 0.3, "seed": 0})),
        subset=draw(st.none() | st.just({"proportion": 0.5, "seed": 0})),
    )
    return Given(name, write(values), card, len(values))


@st.composite
def broken_files(draw: st.DrawFn) -> Given:
    """A file of rows or lines in which bytes are cut out, put in or moved, read in any encoding."""
    source = draw(text_files() | row_files())
    content = source.content
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(content)))
        end = min(len(content), start + draw(st.integers(0, 40)))
        new = draw(
            st.binary(max_size=8)
            | st.sampled_from(
                [b"\xef\xbb\xbf", b"\xff\xfe", b"\x00", b'"', b"\\ud800", b"{", b"[" * 3000]
            )
            | st.sampled_from([b"\r", b"\x1a", b"\xc3", b"\xed\xa0\x80", b"9" * 5000, b"NaN", b"-"])
        )
        content = content[:start] + new + content[end:]
    fields = {
        "format__kind": source.card.format.kind,
        "format__documents": source.card.format.documents,
        "format__heading": source.card.format.heading,
        "format__fields": ROW_FIELDS
        if source.card.format.fields.text
        else dict.fromkeys(ROW_FIELDS),
        "format__query": source.card.format.query,
    }
    encoding = draw(st.sampled_from(ENCODINGS) | st.just(["utf-8", "cp1252"]))
    card = make_card(
        **fields,
        format__encoding=encoding,
        format__on_error=draw(st.sampled_from(["fail", "skip", "skip"])),
    )
    return Given(source.name, content, card)


any_bytes = st.builds(
    lambda content, encoding, kind, name: Given(
        name,
        content,
        make_card(
            format__kind=kind,
            format__encoding=encoding,
            format__documents="line" if kind == "text" else "row",
            format__fields=dict.fromkeys(ROW_FIELDS) if kind == "text" else ROW_FIELDS,
            format__query="SELECT * FROM t" if kind == "sqlite" else None,
            format__on_error="skip",
        ),
    ),
    st.binary(max_size=200),
    st.sampled_from(ENCODINGS),
    st.sampled_from(["text", "jsonl", "json", "csv", "parquet", "sqlite"]),
    st.sampled_from(["a.txt", "b.gz", "ä.bin"]),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where every example writes its file and its corpus."""
    return tmp_path_factory.mktemp("fuzz")


def prepare(folder: Path, given_: Given) -> tuple[PrepareReport, list[Document]]:
    path = folder / given_.name
    path.write_bytes(given_.content)
    corpus_paths = CorpusPaths(folder / "corpora" / given_.card.id)
    shutil.rmtree(corpus_paths.root, ignore_errors=True)
    fetch_corpus(
        given_.card,
        corpus_paths=corpus_paths,
        source=path,
        params=FetchParams(retries=0, timeout_seconds=1),
        progress=SilentProgress(),
    )
    report = prepare_corpus(
        given_.card,
        corpus_paths=corpus_paths,
        tokenise=tokenise,
        progress=SilentProgress(),
        params=PrepareParams(2, 3),
    )
    return report, list(DocumentStore(corpus_paths.documents).iter_documents())


def check_corpus(folder: Path, given_: Given) -> tuple[PrepareReport, list[Document]] | None:
    try:
        report, documents = prepare(folder, given_)
    except CogError as error:
        message = str(error)
        message.encode("utf-8")
        assert message
        assert "\n" not in message
        # a file that is as the card says ends badly only where no document has a word
        assert given_.count is None or "must have at least one document" in message, message
        return None
    assert report.num_documents == len(documents) > 0
    assert report.num_read == len(documents) + sum(report.skipped.values())
    assert report.digest == digest_records(documents)
    assert len({document.document_id for document in documents}) == len(documents)
    if given_.count is not None:
        assert report.num_read == given_.count
    if given_.letters is not None and report.skipped["malformed"] == 0:
        assert get_letters("".join(each.text for each in documents)) == given_.letters
    return report, documents


STRATEGIES = {
    "texts": text_files(),
    "rows": row_files(),
    "broken": broken_files(),
    "bytes": any_bytes,
}


@pytest.fixture(scope="module")
def model(tiny_model: Path) -> IndexModel:
    """What indexes are built with."""
    return load_index_model(tiny_model)


@pytest.mark.parametrize("kind", STRATEGIES)
@pytest.mark.parametrize(
    "num_files", [50, pytest.param(2500, marks=pytest.mark.slow)], ids=["few", "all"]
)
def test_no_file_gives_a_traceback_and_nothing_is_lost(
    folder: Path, model: IndexModel, kind: str, num_files: int
) -> None:
    builds = Builds(folder, model)

    @settings(max_examples=num_files, deadline=None, derandomize=True, database=None, **QUIET)
    @given(STRATEGIES[kind])
    def check(given_: Given) -> None:
        prepared = check_corpus(folder, given_)
        if prepared is not None:
            builds.add(*prepared)

    check()
    builds.finish()
    assert builds.num_documents > 0
    assert builds.num_words >= builds.num_documents
