"""Inputs that break tools of this kind, each with its right outcome."""

import csv
import gzip
import io
import json
import sqlite3
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cog.cards import Card
from cog.corpus.detection import MIN_CONFIDENCE, guess_encoding
from cog.errors import CorpusError
from tests.corpus.building import make_card, prepare

TEXT = "Größe der Straße, schön und naïve Übermäßigkeit im März, ähnlich öfter.\nZweite Zeile.\n"
FIELDS = {"id": "id", "title": None, "text": "body", "url": None, "licence": None}


def pack(content: bytes) -> bytes:
    return gzip.compress(content, mtime=0)  # the same bytes, and test names, at any time


def make_row_card(kind: str, **changes: Any) -> Card:  # noqa: ANN401
    changes = {"format__fields": FIELDS, "format__documents": "row", **changes}
    return make_card(format__kind=kind, **changes)


def read_texts(tmp_path: Path, files: dict[str, bytes], card: Card) -> list[str]:
    _, documents, _ = prepare(tmp_path, files, card)
    return [document.text for document in documents]


# ------------------------------------------------------------------ encodings


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (TEXT.encode("latin-1"), r"byte 0xf6 at byte offset 2; .*is it latin-1\? confidence 0\."),
        (TEXT.encode("utf-16"), r"byte 0xff at byte offset 0; .*is it utf-16\? confidence 1.00"),
        (TEXT.encode("utf-16-be"), r"byte 0xf6 at byte offset 5; .*is it utf-16-be\?"),
        (TEXT.encode("utf-32"), r"byte 0xff at byte offset 0; .*is it utf-32\? confidence 1.00"),
        (
            TEXT.encode() + TEXT.encode("cp1252"),
            r"byte 0xf6 at byte offset 99; .* two encodings in one file",
        ),
        ("ASCII only".encode("utf-16-le"), r"NUL at character 1 of the text \(a UTF-16 file\?"),
        (b"\x1f\x8b" + b"x" * 40, r"a.txt must be a whole gzip file"),
        (pack(TEXT.encode())[:-9], r"a.txt must be a whole gzip file"),
        (pack(TEXT.encode()) + b"rest", r"a.txt must be a whole gzip file"),
        (pack(pack(b"x")), r"found: gzip inside gzip; next: unpack it"),
        (b"PK\x03\x04" + bytes(40), r"found: a zip archive, or a document that is one"),
        (b"%PDF-1.7\n", r"must be text, plain or packed with gzip or zstd; found: PDF"),
    ],
)
def test_text_that_is_not_utf8_is_refused_with_the_place_and_the_field(
    tmp_path: Path, content: bytes, message: str
) -> None:
    with pytest.raises(CorpusError, match=message):
        prepare(tmp_path, {"a.txt": content}, make_card())


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "cp1252"]
)
def test_a_detected_encoding_is_said_with_its_confidence(tmp_path: Path, encoding: str) -> None:
    card = make_card(format__encoding="detect")
    report, documents, _ = prepare(tmp_path, {"a.txt": TEXT.encode(encoding)}, card)
    assert [document.text for document in documents] == TEXT.splitlines()
    assert any("detected: " in note and "confidence" in note for note in report.notes)


def test_a_little_french_is_not_taken_for_a_language_of_the_north() -> None:
    text = "Les élèves français étaient déjà arrivés à l'école où la maîtresse les attendait."
    guess = guess_encoding(text.encode("latin-1"))
    assert (guess.encoding, guess.confidence >= MIN_CONFIDENCE) == ("latin-1", True)
    text = "Ąžuolas auga prie ežero, o žuvys plaukioja šaltame vandenyje. Šiandien gražus oras."
    guess = guess_encoding(text.encode("cp1257"))
    assert guess.encoding == "cp1257" or guess.confidence < MIN_CONFIDENCE


def test_what_cannot_be_detected_for_certain_is_refused(tmp_path: Path) -> None:
    card = make_card(format__encoding="detect")
    for content in (b"caf\xe9", (TEXT * 3).encode("cp437")):
        with pytest.raises(CorpusError, match=r"told for certain; found: at best .*confidence 0\."):
            prepare(tmp_path, {"a.txt": content}, card)


def test_byte_order_is_never_that_of_the_machine(tmp_path: Path) -> None:
    content = TEXT.encode("utf-16-be")
    with pytest.raises(CorpusError, match=r"byte-order mark to be read as utf-16; .* utf-16-be\?"):
        prepare(tmp_path, {"a.txt": content}, make_card(format__encoding="utf-16"))
    card = make_card(format__encoding=["utf-16", "utf-16-be"])
    assert read_texts(tmp_path, {"a.txt": content}, card) == TEXT.splitlines()


@pytest.mark.parametrize(
    ("name", "kind", "content"),
    [
        ("a.csv", "csv", b"\xef\xbb\xbfid,body\n1,one\n2,\xef\xbb\xbftwo\n"),
        (
            "a.jsonl",
            "jsonl",
            b'\xef\xbb\xbf{"id": 1, "body": "one"}\n{"id": 2, "body": "\\ufefftwo"}',
        ),
        ("a.json", "json", b'\xef\xbb\xbf[{"id": 1, "body": "one"}, {"id": 2, "body": "two"}]'),
        ("a.txt", "text", b"\xef\xbb\xbfone\n\xef\xbb\xbftwo\n"),
        (
            "a.txt",
            "text",
            pack(b"\xef\xbb\xbfone\n") + pack(b"\xef\xbb\xbftwo\n"),
        ),
    ],
)
def test_byte_order_marks_never_stay_inside(
    tmp_path: Path, name: str, kind: str, content: bytes
) -> None:
    card = make_card() if kind == "text" else make_row_card(kind)
    report, documents, _ = prepare(tmp_path, {name: content}, card)
    assert [document.text for document in documents] == ["one", "two"]
    assert any("byte-order mark" in note for note in report.notes)


# ------------------------------------------------------------------ rows


def test_a_key_that_stands_twice_is_no_document(tmp_path: Path) -> None:
    lines = b'{"id": 1, "body": "one"}\n{"id": 2, "body": "a", "body": "b"}\n'
    lines += b'{"id": 3, "body": "c", "n": 1, "n": 2}\n'
    with pytest.raises(CorpusError, match="a.jsonl:2 .* the key 'body' stands twice"):
        prepare(tmp_path, {"a.jsonl": lines}, make_row_card("jsonl"))
    card = make_row_card("jsonl", format__on_error="skip")
    assert read_texts(tmp_path, {"a.jsonl": lines}, card) == ["one", "c"]


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1)])
def test_what_is_rejected_makes_no_later_record_a_duplicate(
    tmp_path: Path, order: tuple[int, ...]
) -> None:
    given = (("a", "one"), ("a", "two"), ("b", "two"))
    rows = [{"id": name, "body": text} for name, text in given]
    card = make_row_card("jsonl", format__on_error="skip")
    content = "\n".join(json.dumps(rows[i]) for i in order).encode()
    report, documents, _ = prepare(tmp_path, {"a.jsonl": content}, card)
    found = {document.document_id: document.text for document in documents}
    assert found == {"a": "one", "b": "two"}
    assert sum(report.skipped.values()) == 1


def test_objects_of_one_key_in_a_mapping_are_all_read(tmp_path: Path) -> None:
    content = b'{"k": {"body": "one"}, "k": {"body": "two"}, "m": {"body": "three"}}'
    card = make_row_card("json", format__fields={**FIELDS, "id": "@key"}, format__on_error="skip")
    report, documents, _ = prepare(tmp_path, {"a.json": content}, card)
    assert [document.text for document in documents] == ["one", "three"]
    assert report.skipped["malformed"] == 1
    assert "the id 'k' was there before" in report.notes[0]


def test_nested_objects_and_lists_are_read_by_path(tmp_path: Path) -> None:
    row = {"id": 1, "article": {"head": "H", "body": ["one", "two"]}, "a.b": "flat"}
    fields = {**FIELDS, "text": ["article.head", "article.body", "a.b"]}
    content = json.dumps(row).encode()
    card = make_row_card("jsonl", format__fields=fields)
    assert read_texts(tmp_path / "1", {"a.jsonl": content}, card) == ["H\none\ntwo\nflat"]
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([row]), sink)
    card = make_row_card("parquet", format__fields=fields)
    assert read_texts(tmp_path / "2", {"a.parquet": sink.getvalue()}, card) == ["H\none\ntwo\nflat"]


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_a_column_that_stands_twice_is_refused(tmp_path: Path, name: str) -> None:
    content = b"id,body,body\n1,a,b\n"
    if name == "a.parquet":
        sink = io.BytesIO()
        arrays = [pa.array(["1"]), pa.array(["a"]), pa.array(["b"])]
        pq.write_table(pa.Table.from_arrays(arrays, names=["id", "body", "body"]), sink)
        content = sink.getvalue()
    with pytest.raises(CorpusError, match="must have 'body' only once; found: id, body, body"):
        prepare(tmp_path, {name: content}, make_row_card(name.split(".")[1]))


def test_rows_of_csv_with_quotes_line_breaks_and_a_stray_mark(tmp_path: Path) -> None:
    content = b'id,body\r\n1,"a ""b"", c\r\nd"\r\n2,"x"y\r\n3,z\r\n\r\n4\r\n5,e,f\r\n6,last'
    with pytest.raises(CorpusError, match="a.csv:4 .* not CSV: ',' expected after '\"'"):
        prepare(tmp_path, {"a.csv": content}, make_row_card("csv"))
    card = make_row_card("csv", format__on_error="skip")
    report, documents, _ = prepare(tmp_path, {"a.csv": content}, card)
    assert [document.text for document in documents] == ['a "b", c\nd', "z", "last"]
    assert (report.skipped["malformed"], report.skipped["empty"], report.num_read) == (3, 1, 7)


def test_a_quotation_that_never_ends_is_not_one_bad_row(tmp_path: Path) -> None:
    content = b'id,body\n1,one\n2,"two\n3,three\n4,four\n'
    card = make_row_card("csv", format__on_error="skip")
    with pytest.raises(CorpusError, match="a.csv:3 must be CSV; found: unexpected end of data"):
        prepare(tmp_path, {"a.csv": content}, card)


def test_text_of_a_database_that_is_not_utf8_is_one_bad_row(tmp_path: Path) -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE t (id, body)")
    connection.execute("INSERT INTO t VALUES (1, 'one'), (2, CAST(x'ff41' AS TEXT)), (3, x'41')")
    connection.commit()
    content = connection.serialize()
    connection.close()
    query = "SELECT * FROM t"
    card = make_row_card("sqlite", format__query=query)
    with pytest.raises(CorpusError, match="a.db:2 .* bytes that are not UTF-8 in 'body'"):
        prepare(tmp_path, {"a.db": content}, card)
    card = make_row_card("sqlite", format__query=query, format__on_error="skip")
    report, documents, _ = prepare(tmp_path, {"a.db": content}, card)
    assert ([document.text for document in documents], report.skipped["malformed"]) == (["one"], 2)
    card = make_row_card("sqlite", format__query="SELECT * FROM gone")
    with pytest.raises(CorpusError, match="no such table: gone; next: mend format.query"):
        prepare(tmp_path, {"a.db": content}, card)


def test_odd_types_of_parquet_are_named(tmp_path: Path) -> None:
    table = pa.table(
        {
            "id": pa.array([1, 2, 3, 4], pa.int16()),
            "body": pa.array(["one", "two", None, ""], pa.dictionary(pa.int8(), pa.large_string())),
            "odd": pa.array([b"\xff", b"", None, b"x"], pa.binary()),
            "time": pa.array([1 << 62, 0, None, 5], pa.timestamp("ns")),
        }
    )
    sink = io.BytesIO()
    pq.write_table(table, sink)
    card = make_row_card("parquet", format__on_error="skip")
    report, documents, _ = prepare(tmp_path, {"a.parquet": sink.getvalue()}, card)
    assert [(each.document_id, each.text) for each in documents] == [("1", "one"), ("2", "two")]
    assert (report.skipped["malformed"], report.skipped["empty"]) == (1, 1)
    card = make_row_card("parquet", format__fields={**FIELDS, "text": "odd"})
    with pytest.raises(CorpusError, match="field 'odd' must be a text, not bytes"):
        prepare(tmp_path, {"a.parquet": sink.getvalue()}, card)


# ------------------------------------------------------------------ schema

SCHEMA = {"id": "integer", "body": "text?", "n": "number?", "is": "boolean?"}


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"id": "1", "body": "x"}, "field 'id' must be integer, not str"),
        ({"body": "x"}, "field 'id' must be integer, not null or missing"),
        ({"id": 1, "body": 3}, r"field 'body' must be text\?, not int"),
        ({"id": 1, "body": "x", "n": "2"}, r"field 'n' must be number\?, not str"),
        ({"id": 1, "body": "x", "is": 1}, r"field 'is' must be boolean\?, not int"),
    ],
)
def test_a_row_that_is_not_as_declared_has_file_and_line(
    tmp_path: Path, row: dict[str, Any], problem: str
) -> None:
    first = json.dumps({"id": 7, "body": "kept", "n": None, "is": True})
    content = f"{first}\n{json.dumps(row)}\n".encode()
    card = make_row_card("jsonl", format__schema=SCHEMA)
    with pytest.raises(CorpusError, match=f"a.jsonl:2 must be a usable record; found: {problem}"):
        prepare(tmp_path, {"a.jsonl": content}, card)
    card = make_row_card("jsonl", format__schema=SCHEMA, format__on_error="skip")
    assert read_texts(tmp_path, {"a.jsonl": content}, card) == ["kept"]


def test_files_with_other_columns_fit_where_the_schema_says_so(tmp_path: Path) -> None:
    files = {"a.csv": b"id,body,title\n1,one,T\n", "b.csv": b"id,body\n2,two\n"}
    fields = {**FIELDS, "title": "title"}
    with pytest.raises(CorpusError, match=r"b.csv must have the column 'title'; .* format.schema"):
        prepare(tmp_path, files, make_row_card("csv", format__fields=fields))
    schema = {"id": "integer", "title": "text?"}
    card = make_row_card("csv", format__fields=fields, format__schema=schema)
    _, documents, _ = prepare(tmp_path, files, card)
    assert [(each.text, each.title) for each in documents] == [("one", "T"), ("two", "")]
    with pytest.raises(CorpusError, match="a.csv:3 .* field 'id' must be integer, not 'x'"):
        prepare(tmp_path, {**files, "a.csv": b"id,body,title\n1,a,\nx,b,\n"}, card)


# ------------------------------------------------------------------ entities


def test_entities_are_decoded_once_and_only_whole_ones(tmp_path: Path) -> None:
    text = "&lt;b&gt; &amp;amp; &eacute;&#233;&#xe9; ?a=1&copy=2 &nothing; &#0; &#xD800; A&B"
    card = make_card(normaliser="html-v1")
    assert read_texts(tmp_path / "1", {"a.txt": text.encode()}, card) == [
        "<b> &amp; ééé ?a=1&copy=2 &nothing; &#0; &#xD800; A&B"
    ]
    report, documents, _ = prepare(tmp_path / "2", {"a.txt": text.encode()}, make_card())
    assert documents[0].text == text
    assert report.notes == (
        "1 documents hold HTML entities such as &amp;: normaliser html-v1 decodes them",
    )
    card = make_card(normaliser="html-v1+wikitext-v1")
    assert read_texts(tmp_path / "3", {"a.txt": b" AT&amp;T @-@ made , "}, card) == ["AT&T-made,"]


@pytest.mark.parametrize("name", ["a.tsv", "A.TSV", "a.Tsv.GZ", "a.tsv.zst", "a.tsv.csv"])
def test_the_ending_of_a_file_says_what_parts_its_cells(tmp_path: Path, name: str) -> None:
    mark = "," if name.endswith("csv") else "\t"
    content = f"id{mark}body\n1{mark}one; two\n".encode()
    content = pack(content) if name.endswith("GZ") else content
    content = pa.compress(content, codec="zstd", asbytes=True) if ".zst" in name else content
    assert read_texts(tmp_path, {name: content}, make_row_card("csv")) == ["one; two"]


def test_a_csv_of_everything_survives(tmp_path: Path) -> None:
    bodies = ['say "so",\nthen', "a\u2028b\u0085c", "tab\there", "emoji 😀", "שלום", "'; DROP"]
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerows([["id", "body"], *enumerate(bodies)])
    assert read_texts(tmp_path, {"a.csv": text.getvalue().encode()}, make_row_card("csv")) == bodies
