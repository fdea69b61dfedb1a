"""Raw bytes of text files: a path goes in, decoded lines of bounded length come out, streamed."""

import codecs
import gzip
import io
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from cog.corpus.tally import Tally
from cog.errors import CorpusError

BLOCK_BYTES = 1 << 20
MAX_DOCUMENT_CHARACTERS = 1 << 24
BYTE_ORDER_MARK = "\ufeff"
GZIP_MAGIC = b"\x1f\x8b"
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True, slots=True)
class RawFile:
    """One file of ``raw/``.

    :param path: Where it lies.
    :param name: Its name below ``raw/``, with ``/``.
    :param stem: Its name without common folders and suffixes; begins the ids of its documents.
    """

    path: Path
    name: str
    stem: str


@dataclass(frozen=True, slots=True)
class Line:
    """One line of text.

    :param number: Its number in the file, from 1.
    :param text: The line without its end; empty if it is too long.
    :param is_oversized: Whether it has more than ``MAX_DOCUMENT_CHARACTERS`` characters.
    """

    number: int
    text: str
    is_oversized: bool = False


def choose_encoding(file: RawFile, encodings: Sequence[str], *, tally: Tally) -> str:
    """Find the first encoding that fits a whole file; with only one there is nothing to find.

    :param file: The file.
    :param encodings: Names in the order of preference.
    :param tally: Where a second choice is noted.
    :returns: The name of the encoding.
    :raises CorpusError: If none fits: what the first one stumbled over.
    """
    first_error: CorpusError | None = None
    for encoding in encodings if len(encodings) > 1 else ():
        try:
            for _ in iter_decoded(file, encoding):
                pass
        except CorpusError as error:
            first_error = first_error or error
            continue
        if encoding != encodings[0]:
            tally.notes.append(f"{file.name} is not {encodings[0]}: read as {encoding}")
        return encoding
    if first_error is not None:
        raise first_error
    return encodings[0]


def iter_lines(file: RawFile, encoding: str, *, tally: Tally) -> Iterator[Line]:
    """Stream the lines of a text file; they end at a line feed, a carriage return or both.

    :param file: The file; gzip is read transparently.
    :param encoding: How its bytes are read.
    :param tally: Where a byte-order mark is noted.
    :yields: Lines.
    :raises CorpusError: If the bytes are not of the encoding.
    """
    number = 1
    pieces: list[str] = []
    size = 0
    for block in iter_decoded(file, encoding, tally=tally):
        first, *others = block.split("\n")
        for index, piece in enumerate((first, *others)):
            if index > 0:
                yield _end_line(number, pieces, size)
                number, pieces, size = number + 1, [], 0
            size += len(piece)
            if size <= MAX_DOCUMENT_CHARACTERS:
                pieces.append(piece)
    if size > 0:
        yield _end_line(number, pieces, size)


def iter_decoded(file: RawFile, encoding: str, *, tally: Tally | None = None) -> Iterator[str]:
    """Stream a text file in blocks; line ends become line feeds, a byte-order mark is left out.

    :param file: The file; gzip is read transparently.
    :param encoding: How its bytes are read.
    :param tally: Where a byte-order mark is noted; None for no note.
    :yields: Blocks of text.
    :raises CorpusError: If the bytes are not of the encoding, or a gzip file is damaged.
    """
    decoder = io.IncrementalNewlineDecoder(
        codecs.getincrementaldecoder(encoding)("strict"), translate=True
    )
    num_bytes = 0
    is_start = True
    for block in _iter_blocks(file):
        num_bytes += len(block)
        try:
            text = decoder.decode(block, final=not block)
        except UnicodeDecodeError as error:
            offset = num_bytes - len(error.object) + error.start
            raise _wrong_encoding(file, encoding, offset=offset, error=error) from None
        if is_start and text.startswith(BYTE_ORDER_MARK):
            text = text[1:]
            if tally is not None:
                tally.notes.append(f"byte-order mark stripped from {file.name}")
        is_start = is_start and not text
        yield text


def open_raw(path: Path) -> BinaryIO:
    """Open a raw file for reading, unpacking it if it is gzip.

    :param path: The file.
    :returns: A stream of bytes.
    """
    handle = path.open("rb")
    if handle.read(2) != GZIP_MAGIC:
        handle.seek(0)
        return handle
    handle.close()
    return gzip.open(path, "rb")  # type: ignore[return-value]


def _iter_blocks(file: RawFile) -> Iterator[bytes]:
    # The last block is empty: it tells the decoder that nothing follows.
    try:
        with open_raw(file.path) as handle:
            while block := handle.read(BLOCK_BYTES):
                yield block
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise CorpusError(
            f"{file.name} must be a whole gzip file",
            found=str(error),
            run="fetch or copy it again",
            about=file.name,
        ) from None
    yield b""


def _end_line(number: int, pieces: list[str], size: int) -> Line:
    if size > MAX_DOCUMENT_CHARACTERS:
        return Line(number, "", is_oversized=True)
    return Line(number, "".join(pieces))


def _wrong_encoding(
    file: RawFile, encoding: str, *, offset: int, error: UnicodeDecodeError
) -> CorpusError:
    with open_raw(file.path) as handle:
        start = handle.read(2)
    byte = error.object[error.start]
    if start in UTF16_MARKS:
        guess = "utf-16"
    else:
        guess = "cp1252" if 0x80 <= byte < 0xA0 else "latin-1 or cp1252"
    return CorpusError(
        f"{file.name} must be {encoding}",
        found=f"byte 0x{byte:02x} at byte offset {offset}",
        run=f"set format.encoding in the card, or add --encoding (is it {guess}?)",
        about=file.name,
    )
