"""Raw bytes of text files: a path goes in, decoded lines come out, streamed in bounded memory."""

import codecs
import gzip
import io
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from cog.cards import DETECT
from cog.corpus.detection import (
    MIN_CONFIDENCE,
    SAMPLE_BYTES,
    Guess,
    find_container,
    guess_encoding,
    has_mark,
    is_partly_utf8,
)
from cog.corpus.tally import Tally
from cog.errors import CorpusError

BLOCK_BYTES = 1 << 20
PIECE_CHARACTERS = 1 << 20  # longer lines come in pieces
MAX_LINE_CHARACTERS = 1 << 25  # of a line that is one record: an object, or a row
BYTE_ORDER_MARK = "\ufeff"
GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
PACKINGS = (".gz", ".zst")
WIDE = ("utf-16", "utf-32")  # text may hold NUL


@dataclass(frozen=True, slots=True)
class RawFile:
    """One file of ``raw/``."""

    path: Path
    name: str  # its name below `raw/`, with `/`
    stem: str  # its name without common folders and suffixes; begins the ids of its documents


@dataclass(frozen=True, slots=True)
class Line:
    """One line of text, or a piece of a long one."""

    number: int  # its number in the file, from 1
    text: str  # the line without its end, or a piece of it
    is_start: bool = True  # whether it begins the line
    is_end: bool = True  # whether it ends the line

    @property
    def is_whole(self) -> bool:
        """Whether it is a line from beginning to end."""
        return self.is_start and self.is_end


def choose_encoding(file: RawFile, encodings: Sequence[str], *, tally: Tally) -> str:
    """Find the first encoding that fits a whole file; with only one there is nothing to find.

    A second choice, or what was detected, is noted. Raises ``CorpusError`` if none fits (what the
    first one stumbled over), none can be told, or the file is no text.
    """
    _check_text(file)
    is_detected = tuple(encodings) == (DETECT,)
    chosen = _detect_encoding(file, tally=tally) if is_detected else _try(file, encodings, tally)
    tally.encodings[chosen] += 1
    return chosen


def _try(file: RawFile, encodings: Sequence[str], tally: Tally) -> str:
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

    A line of more than ``PIECE_CHARACTERS`` comes in pieces, so that memory stays bounded.
    """
    number, is_start, pending = 1, True, ""
    for block in iter_decoded(file, encoding, tally=tally):
        *ended, rest = block.split("\n")
        for text in ended:
            yield _make_line(number, pending + text, is_start=is_start, is_end=True, tally=tally)
            number, is_start, pending = number + 1, True, ""
        pending += rest
        if len(pending) > PIECE_CHARACTERS:
            yield _make_line(number, pending, is_start=is_start, is_end=False, tally=tally)
            is_start, pending = False, ""
    if pending or not is_start:
        yield _make_line(number, pending, is_start=is_start, is_end=True, tally=tally)


def iter_records(file: RawFile, encoding: str, *, tally: Tally) -> Iterator[tuple[int, str | None]]:
    """Stream numbers and lines of a file in which a line is a record; None for one too long."""
    pieces: list[str] = []
    size = 0
    for line in iter_lines(file, encoding, tally=tally):
        if line.is_whole:
            yield line.number, line.text if len(line.text) <= MAX_LINE_CHARACTERS else None
            continue
        if line.is_start:
            pieces, size = [], 0
        size += len(line.text)
        if size <= MAX_LINE_CHARACTERS:
            pieces.append(line.text)
        if line.is_end:
            yield line.number, "".join(pieces) if size <= MAX_LINE_CHARACTERS else None


def iter_decoded(file: RawFile, encoding: str, *, tally: Tally | None = None) -> Iterator[str]:
    """Stream a text file in blocks; line ends become line feeds, a byte-order mark is left out."""
    decoder = io.IncrementalNewlineDecoder(
        codecs.getincrementaldecoder(encoding)("strict"), translate=True
    )
    num_bytes = 0
    is_start = True
    for block in _iter_blocks(file):
        if num_bytes == 0:
            _check_mark(file, encoding, start=block)
        num_bytes += len(block)
        try:
            text = decoder.decode(block, final=not block)
        except UnicodeDecodeError as error:
            offset = num_bytes - len(error.object) + error.start
            problem = f"byte {error.object[error.start]:#04x} at byte offset {offset}"
            raise _wrong_encoding(file, encoding, offset=offset, problem=problem) from None
        except UnicodeError as error:  # codecs that keep no place
            raise _wrong_encoding(file, encoding, offset=num_bytes, problem=str(error)) from None
        if is_start and text.startswith(BYTE_ORDER_MARK):
            text = text[1:]
            if tally is not None:
                tally.notes.append(f"byte-order mark stripped from {file.name}")
        is_start = is_start and not text
        yield text


def open_raw(path: Path) -> BinaryIO:
    """Open a raw file for reading, unpacking it if it is gzip or Zstandard."""
    handle = path.open("rb")
    magic = handle.read(len(ZSTD_MAGIC))
    if magic.startswith(GZIP_MAGIC):
        handle.close()
        return gzip.open(path, "rb")  # type: ignore[return-value]
    handle.seek(0)
    if magic != ZSTD_MAGIC:
        return handle
    from pyarrow import CompressedInputStream

    return CompressedInputStream(handle, "zstd")  # type: ignore[no-any-return]


def _iter_blocks(file: RawFile) -> Iterator[bytes]:
    # The last block is empty: it tells the decoder that nothing follows.
    try:
        with open_raw(file.path) as handle:
            while block := handle.read(BLOCK_BYTES):
                yield block
    except (OSError, EOFError, zlib.error) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # not what is packed is wrong, but how it is reached
        raise CorpusError(
            f"{file.name} must be a whole {_name_packing(file.path)} file",
            found=str(error),
            run="fetch or copy it again",
        ) from None
    yield b""


def _name_packing(path: Path) -> str:
    with path.open("rb") as handle:
        return "gzip" if handle.read(2) == GZIP_MAGIC else "zstd"


def is_text(file: RawFile) -> bool:
    """Tell whether a file without an ending looks like text, by its beginning."""
    sample = _read_sample(file)
    is_readable = b"\0" not in sample or guess_encoding(sample).encoding.startswith(WIDE)
    return is_readable and find_container(sample[:512]) is None


def tell_container(file: RawFile) -> str | None:
    """Tell what a packed or binary file is, whatever its name; None for text."""
    return find_container(_read_sample(file)[:512])


def _read_sample(file: RawFile, *, offset: int = 0) -> bytes:
    # The beginning, and what lies around the place that matters.
    sample = bytearray()
    first, last = offset - SAMPLE_BYTES // 2, offset + SAMPLE_BYTES // 2
    place = 0
    for block in _iter_blocks(file):
        sample += block[: max(0, SAMPLE_BYTES - place)]
        around = block[max(0, SAMPLE_BYTES - place, first - place) : max(0, last - place)]
        sample += around
        place += len(block)
        if place >= max(SAMPLE_BYTES, last):
            break
    return bytes(sample)


def _detect_encoding(file: RawFile, *, tally: Tally) -> str:
    offset = 0
    try:
        for _ in iter_decoded(file, "utf-8"):
            pass
        guess = guess_encoding(_read_sample(file))
    except _EncodingError as error:
        offset = error.offset
        guess = guess_encoding(_read_sample(file, offset=offset), is_utf8=False)
    if guess.confidence < MIN_CONFIDENCE:
        raise CorpusError(
            f"{file.name} must have an encoding that can be told for certain",
            found=f"at best {guess}",
            run=_name_encodings("utf-8", guess),
        )
    tally.notes.append(f"{file.name} is read as {guess.encoding} (detected: {guess})")
    return guess.encoding


def _check_text(file: RawFile) -> None:
    container = tell_container(file)
    if container is not None:
        raise CorpusError(
            f"{file.name} must be text, plain or packed with gzip or zstd",
            found=container,
            run="unpack it or make text of it, leave it out, or set format.kind in the card",
        )


def _check_mark(file: RawFile, encoding: str, *, start: bytes) -> None:
    # Without a mark, Python takes the byte order of the machine it runs on.
    name = codecs.lookup(encoding).name
    if start and name in ("utf-16", "utf-32") and not has_mark(start, name):
        raise CorpusError(
            f"{file.name} must begin with a byte-order mark to be read as {name}",
            found="none",
            run=_name_encodings(encoding, guess_encoding(start[:SAMPLE_BYTES])),
        )


def _make_line(number: int, text: str, *, is_start: bool, is_end: bool, tally: Tally) -> Line:
    if is_start and text.startswith(BYTE_ORDER_MARK):
        # Files that were joined: the first one's mark is noted where the file is decoded.
        text = text.removeprefix(BYTE_ORDER_MARK)
        tally.count("byte-order marks stripped from the beginning of lines")
    return Line(number, text, is_start, is_end)


def _name_encodings(encoding: str, guess: Guess) -> str:
    # the first stays: other files may be of it, and the guess alone would fit them wrongly
    return (
        f"pass --encoding {encoding} --encoding {guess.encoding}, or set format.encoding in the "
        f"card (is it {guess.encoding}? confidence {guess.confidence:.2f})"
    )


class _EncodingError(CorpusError):
    """Bytes are not of the encoding they should be of."""

    offset = 0


def _wrong_encoding(file: RawFile, encoding: str, *, offset: int, problem: str) -> _EncodingError:
    sample = _read_sample(file, offset=offset)
    error = _EncodingError(
        f"{file.name} must be {encoding}", found=problem, run=_advise(encoding, sample)
    )
    error.offset = offset
    return error


def _advise(encoding: str, sample: bytes) -> str:
    is_utf8 = codecs.lookup(encoding).name == "utf-8"
    if is_utf8 and is_partly_utf8(sample):
        return "mend the file there: around it is utf-8, so this is two encodings in one file"
    return _name_encodings(encoding, guess_encoding(sample, is_utf8=not is_utf8))
