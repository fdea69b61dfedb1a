"""Bytes of text files: encodings, byte-order marks, line ends, gzip."""

import gzip
from pathlib import Path

import pytest

from cog.corpus import decoding
from cog.corpus.decoding import Line, RawFile, choose_encoding, iter_lines
from cog.corpus.tally import Tally
from cog.errors import CorpusError


def read(tmp_path: Path, content: bytes, encoding: str = "utf-8") -> tuple[list[Line], list[str]]:
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    tally = Tally("fail")
    return list(iter_lines(RawFile(path, "a.txt", "a"), encoding, tally=tally)), tally.list_notes()


def test_lines_end_at_line_feeds_and_carriage_returns_only(tmp_path: Path) -> None:
    text = "one\r\ntwo\rthree\x0b\x0c\x85\u2028still three\n\nfive"
    lines, notes = read(tmp_path, text.encode("utf-8"))
    assert [line.text for line in lines] == [
        "one",
        "two",
        "three\x0b\x0c\x85\u2028still three",
        "",
        "five",
    ]
    assert [line.number for line in lines] == [1, 2, 3, 4, 5]
    assert notes == []


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le"])
def test_a_byte_order_mark_is_stripped_and_said(tmp_path: Path, encoding: str) -> None:
    lines, notes = read(tmp_path, "\ufeffcafé\n\ufeffx\ufeff".encode(encoding), encoding)
    assert [line.text for line in lines] == ["café", "x\ufeff"]
    assert notes == [
        "byte-order mark stripped from a.txt",
        "1 byte-order marks stripped from the beginning of lines",
    ]


@pytest.mark.parametrize("block_bytes", [1, 2, 3, 7, 1 << 20])
def test_blocks_do_not_change_what_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_bytes: int
) -> None:
    monkeypatch.setattr(decoding, "BLOCK_BYTES", block_bytes)
    lines, _ = read(tmp_path, "\ufeffä€😀\r\nb\r\r\nc".encode())
    assert [line.text for line in lines] == ["ä€😀", "b", "", "c"]


@pytest.mark.parametrize("block_bytes", [1, 4, 1 << 20])
@pytest.mark.parametrize(
    ("content", "found", "guess"),
    [
        ("§5 café".encode("latin-1"), r"byte 0xa7 at byte offset 0", "latin-1"),
        (b"a quote \x93here\x94", r"byte 0x93 at byte offset 8", "cp1252"),
        ("text".encode("utf-16"), r"byte 0xff at byte offset 0", "utf-16"),
        (b"surrogate \xed\xa0\x80", r"byte 0xed at byte offset 10", "cp1252"),
        (b"cut \xe2\x82", r"byte 0xe2 at byte offset 4", "cp1252"),
    ],
)
def test_a_wrong_encoding_is_located(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    content: bytes,
    found: str,
    guess: str,
    block_bytes: int,
) -> None:
    monkeypatch.setattr(decoding, "BLOCK_BYTES", block_bytes)
    with pytest.raises(CorpusError, match=f"a.txt must be utf-8; found: {found}") as caught:
        read(tmp_path, content)
    # the guess comes second: alone it would fit the files that are utf-8, and wrongly
    name = guess.split("?")[0]
    assert f"next: pass --encoding utf-8 --encoding {name}, or set" in str(caught.value)
    assert f"(is it {guess}" in str(caught.value)


def test_two_encodings_in_one_file_are_told(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="byte 0xe9 at byte offset 14; .* two encodings in one"):
        read(tmp_path, "ä§ café §5".encode() + b"\xe9x")


def test_the_named_encoding_is_used(tmp_path: Path) -> None:
    lines, _ = read(tmp_path, "café §5".encode("cp1252"), "cp1252")
    assert lines == [Line(1, "café §5")]


def test_the_first_encoding_that_fits_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    file = RawFile(path, "a.txt", "a")
    tally = Tally("fail")
    path.write_bytes("§".encode("mac-roman"))
    assert choose_encoding(file, ["utf-8", "mac-roman"], tally=tally) == "mac-roman"
    assert tally.notes == ["a.txt is not utf-8: read as mac-roman"]
    path.write_bytes("§".encode())
    assert choose_encoding(file, ["utf-8", "mac-roman"], tally=tally) == "utf-8"
    path.write_bytes(b"\xff")
    with pytest.raises(CorpusError, match="must be utf-8"):
        choose_encoding(file, ["utf-8", "ascii"], tally=tally)


def test_gzip_is_unpacked_and_damage_is_said(tmp_path: Path) -> None:
    packed = gzip.compress("one\ntwo é".encode())
    lines, _ = read(tmp_path, packed)
    assert [line.text for line in lines] == ["one", "two é"]
    with pytest.raises(CorpusError, match="a.txt must be a whole gzip file"):
        read(tmp_path, packed[:-12])


def test_a_line_without_end_comes_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding, "BLOCK_BYTES", 16)
    monkeypatch.setattr(decoding, "PIECE_CHARACTERS", 10)
    lines, _ = read(tmp_path, b"short\n" + b"x" * 100 + b"\nlast")
    assert max(len(line.text) for line in lines) <= 32
    assert "".join(line.text for line in lines if line.number == 2) == "x" * 100
    assert [line.is_start for line in lines if line.number == 2].count(True) == 1
    assert [line.is_end for line in lines if line.number == 2].count(True) == 1
    assert (lines[0], lines[-1]) == (Line(1, "short"), Line(3, "last"))
