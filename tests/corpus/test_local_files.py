"""Which files of a folder are taken, what is said of the others, and how packed ones are read."""

import os
import sqlite3
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from cog.corpus.local_files import Survey, copy_files, survey_files
from cog.corpus.sources import load_source_record
from cog.errors import CorpusError
from tests.corpus.building import make_card, prepare
from tests.corpus.test_cases import make_row_card, pack, read_texts


def survey(path: Path, kind: str = "text", members: Sequence[str] = ()) -> Survey:
    return survey_files(path, members=members, kinds=[kind])


def copy(path: Path, raw: Path, kind: str = "text") -> None:
    copy_files(survey(path, kind), raw)


ZIP = "a zip archive, or a document that is one (docx, xlsx, epub)"
MIXED = {
    "read.txt": b"one",
    "guide/read.md": b"two",
    "guide/deep/read.rst": b"three",
    "guide/more.markdown": b"four",
    "changelog.gz": pack(b"five"),
    "news.txt.zst": pa.compress(b"six", codec="zstd", asbytes=True),
    "COPYING": b"seven",
    "noted": "eight".encode("utf-16"),
    "picture.png": b"\x89PNG\0",
    "plot.svg": b"<svg/>",
    "table.csv": b"a,b\n",
    "program": b"\x7fELF\0\0",
    "report.txt": b"%PDF-1.7\n",
    "old.md.gz": pack(b"PK\x03\x04"),
    "all": b"PK\x03\x04",
    "odd\udcff.png": b"",
}


def test_a_mixed_folder_is_read_or_named_with_the_reason(tmp_path: Path) -> None:
    card = make_card(format__documents="file", format__encoding=["utf-8", "utf-16"])
    _, documents, paths = prepare(tmp_path, MIXED, card)
    assert sorted(each.text for each in documents) == sorted(
        ["one", "two", "three", "four", "five", "six", "seven", "eight"]
    )
    record = load_source_record(paths.raw)
    assert record.left == {
        "all": "without an ending, not text",
        "'odd\\udcff.png'": "with the ending .png",
        "picture.png": "with the ending .png",
        "plot.svg": "with the ending .svg",
        "old.md.gz": f"{ZIP} by content",
        "program": "without an ending, not text",
        "report.txt": "PDF by content",
        "table.csv": "of kind csv",
    }
    assert record.describe() == (
        "8 of 16 files taken (not taken: 2 without an ending, not text: all, program;"
        " 2 with the ending .png: 'odd\\udcff.png', picture.png;"
        f" 1 {ZIP} by content: old.md.gz;"
        " 1 with the ending .svg: plot.svg; 1 PDF by content: report.txt;"
        " 1 of kind csv: table.csv)"
    )


PAGE = """<?xml version="1.0" encoding="latin-1"?><html><head><title>The\n mill</title>
<style>p {}</style><script>let a = "<p>"</script></head><body><h1>A mill</h1>
<p>It <b>grinds</b> c\u00f6rn &amp; more,<br/>daily.</p><ul><li>one</li></ul></body></html>"""


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        (PAGE.encode(), ["A mill\n\nIt grinds c\u00f6rn & more,\ndaily.\n\n  * one"]),
        (b"<!-- nothing -->", []),
        (b"", []),
    ],
    ids=["page", "comment", "empty"],
)
def test_html_becomes_text(tmp_path: Path, content: bytes, texts: list[str]) -> None:
    pytest.importorskip("inscriptis")
    files = {"page.html": content, "last.txt": b"end"}
    _, documents, _ = prepare(tmp_path, files, make_card(format__documents="file"))
    assert [each.text for each in documents] == ["end", *texts]
    assert [each.title for each in documents] == ["", *("The mill" for _ in texts)]


@pytest.mark.parametrize(
    ("name", "content"), [("a.gz", pack(b"one two")), ("a.zst", MIXED["news.txt.zst"])]
)
def test_a_packed_file_that_was_cut_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    with pytest.raises(CorpusError, match=f"{name} must be a whole (gzip|zstd) file"):
        read_texts(tmp_path, {name: content[:-3]}, make_card())


def test_a_link_to_nothing_is_named_and_not_passed_over(tmp_path: Path) -> None:
    folder = tmp_path / "given"
    folder.mkdir()
    (folder / "a.txt").write_text("one")
    (folder / "b.txt").symlink_to("gone.txt")
    (folder / "c.dat").symlink_to("gone.dat")
    with pytest.raises(CorpusError, match="b.txt must be a file; found: a link to nothing"):
        survey(folder)
    found = survey(folder, members=["a.*"])
    assert (found.taken, set(found.left)) == (["a.txt"], {"b.txt", "c.dat"})
    (folder / "b.txt").unlink()
    os.mkfifo(folder / "b.txt")
    with pytest.raises(CorpusError, match="found: a device, a pipe or a socket"):
        survey(folder)


def test_linked_folders_are_followed_once(tmp_path: Path) -> None:
    (tmp_path / "given" / "x").mkdir(parents=True)
    (tmp_path / "given" / "x" / "loop").symlink_to(tmp_path / "given", target_is_directory=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "b.txt").write_text("two")
    (tmp_path / "given" / "linked").symlink_to(tmp_path / "other", target_is_directory=True)
    assert read_texts(tmp_path, {"x/a.txt": b"one", "x/c.txt": b"three"}, make_card()) == [
        "two",
        "one",
        "three",
    ]


def test_of_two_names_of_a_folder_the_first_counts_whatever_the_disk_says(tmp_path: Path) -> None:
    for number in range(8):
        (tmp_path / f"z{number}").mkdir()
        (tmp_path / f"z{number}" / "a.txt").touch()
        (tmp_path / f"a{number}").symlink_to(tmp_path / f"z{number}", target_is_directory=True)
    assert survey(tmp_path).taken == [f"a{number}/a.txt" for number in range(8)]


def test_what_may_not_be_read_is_named() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "given"
        folder.mkdir()
        (folder / "a.txt").write_text("secret")
        Path(name).chmod(0o777)
        (folder / "a.txt").chmod(0)
        was = os.geteuid()
        if was == 0:
            os.seteuid(65534)
        try:
            with pytest.raises(CorpusError, match=r"'a.txt' must be readable; found: Permission"):
                copy(folder, Path(name))
        finally:
            os.seteuid(was)


@pytest.mark.parametrize("name", [b"bad\xff.txt", b"two\nlines.txt", b"SOURCE.json"])
def test_a_file_name_that_cannot_be_kept_is_refused(tmp_path: Path, name: bytes) -> None:
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / os.fsdecode(name)).write_bytes(b"[]")
    (tmp_path / "given" / "z.json").write_bytes(b"[]")
    kind = "json" if name.endswith(b"json") else "text"
    with pytest.raises(CorpusError, match="a file name must be UTF-8"):
        survey(tmp_path / "given", kind)


def test_files_of_one_stem_keep_their_endings(tmp_path: Path) -> None:
    files = {"a.txt": b"one", "a.md": b"two", "b.txt": b"three", "b.txt.gz": pack(b"four")}
    _, documents, _ = prepare(tmp_path, files, make_card(format__documents="file"))
    assert {document.document_id: document.text for document in documents} == {
        "a.txt": "one",
        "a.md": "two",
        "b.txt": "three",
        "b.txt.gz": "four",
    }


def test_a_file_of_no_bytes_is_counted_or_said(tmp_path: Path) -> None:
    files = {"a.txt": b"one", "b.txt": b"", "c.txt": pack(b"")}
    report, _, _ = prepare(tmp_path, files, make_card(format__documents="file"))
    assert (report.num_read, report.skipped["empty"]) == (3, 2)
    rows = {"a.csv": b"id,body\n1,one\n", "b.csv": b"", "c.csv": b"id,body\n"}
    report, documents, _ = prepare(tmp_path / "rows", rows, make_row_card("csv"))
    assert len(documents) == 1
    assert report.notes == ("b.csv holds no rows", "c.csv holds no rows")


def test_a_database_that_is_being_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "given").mkdir()
    path = tmp_path / "given" / "a.db"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE t (id, body)")
    connection.commit()
    with pytest.raises(CorpusError, match="a.db-wal holds changes that are not in it yet"):
        copy(path, tmp_path, "sqlite")
    connection.close()
