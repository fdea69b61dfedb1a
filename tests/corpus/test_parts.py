"""Documents beyond the limit: cut into parts, and nothing of them is lost."""

import json
from pathlib import Path
from typing import Any

import pytest

from cog.corpus import decoding, parts
from cog.corpus.parts import count_words, find_cut
from cog.errors import CorpusError
from tests.corpus.building import make_card, prepare


@pytest.mark.parametrize(
    ("kind", "name", "content", "documents"),
    [
        ("text", "a.txt", b"short\n" + b"word " * 10 + b"\nlast", "line"),
        ("text", "a.txt", b"short\nword word word\nx\nword word", "file"),
        ("text", "a.txt", b"x" * 65, "file"),
        ("jsonl", "a.jsonl", json.dumps({"body": "word " * 10}).encode(), "row"),
        ("jsonl", "a.jsonl", json.dumps({"body": "word " * 10}).encode(), "line"),
    ],
)
def test_a_document_beyond_the_limit_is_cut_and_nothing_is_lost(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    name: str,
    content: bytes,
    documents: str,
) -> None:
    monkeypatch.setattr(parts, "MAX_DOCUMENT_CHARACTERS", 20)
    card = make_card(
        format__kind=kind,
        format__documents=documents,
        format__fields__text=None if kind == "text" else "body",
        deduplicate="none",
    )
    report, found, _ = prepare(tmp_path, {name: content}, card)
    assert max(len(document.text) for document in found) <= 20
    whole = content.decode() if kind == "text" else "word " * 10
    assert "".join("".join(each.text for each in found).split()) == "".join(whole.split())
    ids = [document.document_id for document in found]
    assert ids[-1].endswith(f":part-{len(found)}") or ids[-1] == "a:3"
    assert any("are cut into parts" in note for note in report.notes)


def test_a_record_of_one_line_beyond_the_limit_is_refused_or_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding, "MAX_LINE_CHARACTERS", 60)
    monkeypatch.setattr(decoding, "PIECE_CHARACTERS", 10)
    content = b'{"body": "' + b"word " * 20 + b'"}\n{"body": "kept"}\n'
    fields: dict[str, Any] = dict(
        format__kind="jsonl", format__documents="row", format__fields__text="body"
    )
    with pytest.raises(CorpusError, match=r"a.jsonl:1 .* over 33554432 characters"):
        prepare(tmp_path, {"a.jsonl": content}, make_card(**fields))
    card = make_card(**fields, format__on_error="skip")
    report, documents, _ = prepare(tmp_path, {"a.jsonl": content}, card)
    assert report.skipped["too-long"] == 1
    assert [document.text for document in documents] == ["kept"]


def test_a_cut_lies_after_a_line_feed_a_space_or_anywhere() -> None:
    assert find_cut("aaa aaaa\na a aaaa", 12) == 9
    assert find_cut("aaaaaa aaaaaaaaa", 12) == 7
    assert find_cut("a aaaaaaaaaaaaaaaa", 12) == 12


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_words_are_counted_in_pieces(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(parts, "COUNTED_AT_ONCE", size)
    for text in ("one two  three", " x", "x ", "\u2028a\u0085b\x1cc", "abcdefgh", "   "):
        assert count_words(text) == len(text.split())
