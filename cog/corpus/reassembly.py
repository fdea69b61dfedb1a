"""Lines become documents: lines go in, units of text with a title come out, by the card's rule."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain

from cog.cards import WIKITEXT_HEADING
from cog.corpus import parts
from cog.corpus.decoding import Line
from cog.corpus.parts import find_cut

# ` = Title = `; ` = = Section = = ` is no title
_WIKITEXT_TITLE = re.compile(r"= (?!= )(?P<title>\S(?:.*\S)?)(?<! =) =")


@dataclass(slots=True)
class Unit:
    """A run of lines that is one document, or a part of one that is too long."""

    number: int  # number of its first line
    title: str = ""  # its title; empty if it has none
    key: str = ""  # its id; empty if the lines give none
    part: int = 0  # number of the part, from 1; 0 for a document in one piece
    pieces: list[str] = field(default_factory=list)  # its text in pieces, line feeds among them
    num_characters: int = 0

    @property
    def text(self) -> str:
        """The pieces, joined."""
        return "".join(self.pieces)

    def add(self, line: Line) -> bool:
        """Append a line; true if the unit is too long now."""
        if self.pieces and line.is_start:
            self._append("\n")
        self._append(line.text)
        return self.num_characters > parts.MAX_DOCUMENT_CHARACTERS

    def split_off(self, line: Line) -> Iterator["Unit"]:
        """Give full parts of what is too long, so that memory stays bounded; the rest goes on."""
        while self.num_characters > parts.MAX_DOCUMENT_CHARACTERS:
            text = self.text
            cut = find_cut(text, parts.MAX_DOCUMENT_CHARACTERS)
            self.part = max(1, self.part)
            yield Unit(self.number, self.title, self.key, self.part, [text[:cut]], cut)
            self.number, self.part = line.number, self.part + 1
            self.pieces, self.num_characters = [text[cut:]], len(text) - cut

    def _append(self, piece: str) -> None:
        self.pieces.append(piece)
        self.num_characters += len(piece)


def iter_units(lines: Iterable[Line], *, documents: str, heading: str | None) -> Iterator[Unit]:
    """Put lines together by a rule of ``cog.cards``, with its heading."""
    if documents == "file":
        return _assemble(chain([Unit(1)], lines))
    if documents == "line":
        return _assemble(_iter_single(lines))
    if documents == "blank-line":
        return _assemble(_iter_paragraphs(lines))
    if documents == "heading" and heading is not None:
        return _assemble(_iter_headed(lines, heading))
    raise ValueError(f"no rule {documents!r} for lines")


def _assemble(steps: Iterable[Unit | Line]) -> Iterator[Unit]:
    # An empty unit begins a document, the lines after it are its own.
    unit: Unit | None = None
    for step in steps:
        if isinstance(step, Unit):
            if unit is not None:
                yield unit
            unit = step
        elif unit is not None and unit.add(step):
            yield from unit.split_off(step)
    if unit is not None:
        yield unit


def _iter_single(lines: Iterable[Line]) -> Iterator[Unit | Line]:
    for line in lines:
        if line.is_start:
            yield Unit(line.number)
        yield line


def _iter_paragraphs(lines: Iterable[Line]) -> Iterator[Unit | Line]:
    is_inside = False
    for line in lines:
        if _is_blank(line):
            is_inside = False
            continue
        if not is_inside:
            yield Unit(line.number)
        is_inside = True
        yield line


def _iter_headed(lines: Iterable[Line], heading: str) -> Iterator[Unit | Line]:
    is_inside = False
    match_pattern = re.compile(heading).fullmatch
    matched = (
        _iter_wikitext(lines)
        if heading == WIKITEXT_HEADING
        else ((line, match_pattern(line.text) if line.is_whole else None) for line in lines)
    )
    for line, match in matched:
        if match is not None:
            groups = match.groupdict()
            yield Unit(line.number, title=groups.get("title") or "", key=groups.get("id") or "")
            is_inside = True
        elif not _is_blank(line):
            if not is_inside:
                yield Unit(line.number)
            is_inside = True
            yield line


def _iter_wikitext(lines: Iterable[Line]) -> Iterator[tuple[Line, re.Match[str] | None]]:
    # A title stands between blank lines; `= Goals ; A =` in a table's legend does not.
    before: Line | None = None
    current: Line | None = None
    for after in lines:
        if current is not None:
            yield current, _match_title(before, current, after)
        before, current = current, after
    if current is not None:
        yield current, _match_title(before, current, None)


def _match_title(before: Line | None, line: Line, after: Line | None) -> re.Match[str] | None:
    is_alone = all(other is None or _is_blank(other) for other in (before, after))
    is_title = is_alone and line.is_whole
    return _WIKITEXT_TITLE.fullmatch(line.text.strip()) if is_title else None


def _is_blank(line: Line) -> bool:
    return line.is_whole and not line.text.strip()
