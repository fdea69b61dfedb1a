"""JSON files of any size: blocks of text go in, the objects in them come out one by one."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cog.corpus.decoding import MAX_LINE_CHARACTERS
from cog.corpus.schema import build_object

KEY_FIELD = "@key"  # the key of an object in a json mapping

_LOOK_AHEAD = 32  # characters after a value that show that it has ended
_SPACE = " \t\n\r"


class JsonError(Exception):
    """A text is not JSON, or not of the form that is needed; says what is wrong in which line."""


@dataclass(slots=True)
class _Buffer:
    # The part of the text that is being read, and how many lines lie before it.
    blocks: Iterator[str]
    text: str = ""
    place: int = 0
    num_lines: int = 0
    is_whole: bool = False

    def fill(self, size: int) -> None:
        """Read on until ``size`` characters lie ahead or the text ends."""
        pieces = [self.text[self.place :]]
        self.num_lines += self.text.count("\n", 0, self.place)
        num_ahead = len(pieces[0])
        while num_ahead < size and not self.is_whole:
            block = next(self.blocks, None)
            self.is_whole = block is None
            pieces.append(block or "")
            num_ahead += len(pieces[-1])
        self.text, self.place = "".join(pieces), 0

    def peek(self) -> str:
        """Pass over white space to the next character, which is given; empty at the end."""
        while True:
            while self.place < len(self.text) and self.text[self.place] in _SPACE:
                self.place += 1
            if self.place < len(self.text) or self.is_whole:
                return self.text[self.place : self.place + 1]
            self.fill(1)

    def take(self, mark: str) -> None:
        """Pass over a mark, which must be there."""
        if self.peek() != mark:
            raise self.error(f"Expecting {mark!r}")
        self.place += 1

    def read(self, decoder: json.JSONDecoder) -> object:
        """Read one value, of bounded size."""
        self.peek()
        while True:
            try:
                value, end = decoder.raw_decode(self.text, self.place)
            except json.JSONDecodeError as error:
                if self.is_whole or not self._may_go_on(error):
                    raise self.error(error.msg, place=error.pos) from None
            except (RecursionError, ValueError) as error:
                raise self.error(str(error)) from None
            else:
                if self.is_whole or end + _LOOK_AHEAD < len(self.text):
                    self.place = end
                    return value
            num_ahead = len(self.text) - self.place
            if num_ahead > MAX_LINE_CHARACTERS:
                raise self.error(f"an object of over {MAX_LINE_CHARACTERS} characters")
            self.fill(2 * num_ahead + _LOOK_AHEAD)

    def error(self, problem: str, *, place: int | None = None) -> JsonError:
        """Say what is wrong and where; without a place, at the one reached."""
        line = self.num_lines + 1 + self.text.count("\n", 0, self.place if place is None else place)
        return JsonError(f"{problem}: line {line}")

    def _may_go_on(self, error: json.JSONDecodeError) -> bool:
        is_open = error.msg.startswith("Unterminated string")
        return is_open or error.pos + _LOOK_AHEAD >= len(self.text)


def iter_items(blocks: Iterator[str]) -> Iterator[object]:
    """Stream what a JSON list or mapping holds, item by item; objects of a mapping get ``@key``."""
    buffer = _Buffer(iter(blocks))
    decoder = json.JSONDecoder(object_pairs_hook=build_object)
    opening = buffer.peek()
    if opening not in ("[", "{"):
        value = buffer.read(decoder)
        raise JsonError(f"a list of objects or a mapping to objects, not {type(value).__name__}")
    closing = {"[": "]", "{": "}"}[opening]
    buffer.place += 1
    if buffer.peek() != closing:
        while True:
            yield _read_keyed(buffer, decoder) if opening == "{" else buffer.read(decoder)
            if buffer.peek() == closing:
                break
            buffer.take(",")
    buffer.take(closing)
    if buffer.peek():
        raise buffer.error("Extra data (format.kind: jsonl, if a line is an object?)")


def _read_keyed(buffer: _Buffer, decoder: json.JSONDecoder) -> object:
    if buffer.peek() != '"':
        raise buffer.error("Expecting property name enclosed in double quotes")
    key = buffer.read(decoder)
    buffer.take(":")
    value: Any = buffer.read(decoder)
    if not isinstance(value, dict):
        return value
    value.setdefault(KEY_FIELD, key)
    return value
