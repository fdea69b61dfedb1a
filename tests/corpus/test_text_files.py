import gzip
import subprocess
import sys
from pathlib import Path

import pytest

from cog.corpus.text_files import find_form, iter_text_documents, list_text_files
from cog.errors import CorpusError

WIKITEXT = " \n = A mill = \n \n The mill @-@ wheel turns . \n \n = = Use = = \n \n It grinds . \n"
HEADED = "= CELEX 1 (1999) =\nArticle 1\nBread is sold.\n\n= CELEX 2 =\nArticle 1\nFish is not.\n"


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (WIKITEXT, [("A mill", "The mill-wheel turns.\nUse\nIt grinds.")]),
        (
            HEADED,
            [
                ("CELEX 1 (1999)", "Article 1\nBread is sold."),
                ("CELEX 2", "Article 1\nFish is not."),
            ],
        ),
        ("One.\nTwo.\n\n\nThree.\n", [("", "One.\nTwo."), ("", "Three.")]),
        ("One sentence.\nAnother one.\n", [("", "One sentence."), ("", "Another one.")]),
        ("\r\n\r\n \r\n", []),
        ("", []),
    ],
    ids=["wikitext", "headed", "blank-line", "line", "blank", "empty"],
)
@pytest.mark.parametrize("name", ["text.txt", "text.txt.gz"])
def test_documents_are_told_by_the_form_of_the_file(
    tmp_path: Path, name: str, text: str, wanted: list[tuple[str, str]]
) -> None:
    path = write(tmp_path, name, text)
    found = list(iter_text_documents([path]))
    assert [(each.title, each.text) for each in found] == wanted
    assert [each.document_id.partition(":")[0] for each in found] == ["text"] * len(wanted)


def test_same_text_in_two_files_is_one_document(tmp_path: Path) -> None:
    paths = [write(tmp_path, name, "One.\n\nTwo.\n") for name in ("a.txt", "b.txt")]
    found = list(iter_text_documents(paths))
    assert [each.text for each in found] == ["One.", "Two."]
    assert len({each.document_id for each in found}) == 2


SENTENCES = [f"Sentence {number} stands in a line." for number in range(200)]
WRAPPED = [f"line {number} of a text that is wrapped where" for number in range(200)]


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        ([*SENTENCES, "", ""], "line"),
        (["", *SENTENCES], "line"),
        ([*SENTENCES[:120], "", *SENTENCES[120:]], "line"),
        ([*WRAPPED[:120], "", *WRAPPED[120:]], "blank-line"),
        ([*SENTENCES[:4], "", *SENTENCES[4:30]], "blank-line"),
    ],
    ids=["blank at the end", "blank at the start", "stray blank", "wrapped", "paragraphs"],
)
def test_blank_line_alone_does_not_join_a_file_of_sentences(
    tmp_path: Path, lines: list[str], wanted: str
) -> None:
    assert find_form(write(tmp_path, "text.txt", "\n".join(lines) + "\n")).documents == wanted


@pytest.mark.parametrize("name", ["missing.txt", "."])
def test_missing_file_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(CorpusError, match="must be a text file; found: no such file"):
        find_form(tmp_path / name)


def test_other_encoding_is_refused_without_naming_a_card(tmp_path: Path) -> None:
    path = tmp_path / "latin.txt"
    path.write_bytes("Café.\n\nThé.\n".encode("latin-1"))
    with pytest.raises(CorpusError, match="latin.txt must be utf-8") as caught:
        list(iter_text_documents([path]))
    assert "card" not in str(caught.value)


def test_folders_are_read_to_the_bottom_and_what_is_left_is_named(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    write(tmp_path, "a.md", "One.")
    write(tmp_path / "deep", "b.rst.gz", "Two.")
    rows = write(tmp_path, "d.jsonl.gz", '{"text": "Three."}')
    files, notes = list_text_files([tmp_path])
    assert [each.name for each in files] == ["a.md", "b.rst.gz"]
    assert notes == [f"{tmp_path}: 2 of 3 files taken (not taken: 1 of kind jsonl: d.jsonl.gz)"]
    with pytest.raises(CorpusError, match="found: jsonl.*; next: cog corpus add ID"):
        list_text_files([rows])


def test_reading_loads_no_store() -> None:
    code = "import sys, cog.corpus.text_files as t\n" + (
        "assert not {'pyarrow', 'datasets', 'lancedb', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
