"""Lines become documents: lines go in, units of text with a title come out, by the card's rule."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from cog.cards import WIKITEXT_HEADING
from cog.corpus.decoding import MAX_DOCUMENT_CHARACTERS, Line

# ` = Title = `; ` = = Section = = ` is no title
_WIKITEXT_TITLE = re.compile(r"= (?!= )(?P<title>\S(?:.*\S)?)(?<! =) =")


@dataclass(slots=True)
class Unit:
    """A run of lines that is one document.

    :param number: Number of its first line.
    :param title: Its title; empty if it has none.
    :param key: Its id; empty if the lines give none.
    :param lines: Its lines.
    :param num_characters: Their length with line ends; above the limit ``lines`` is not complete.
    """

    number: int
    title: str = ""
    key: str = ""
    lines: list[str] = field(default_factory=list)
    num_characters: int = 0

    @property
    def is_oversized(self) -> bool:
        """Whether the text is longer than a document may be."""
        return self.num_characters > MAX_DOCUMENT_CHARACTERS

    @property
    def text(self) -> str:
        """The lines, joined."""
        return "\n".join(self.lines)

    def add(self, line: Line) -> None:
        """Append a line; beyond the limit it is only counted, so that memory stays bounded.

        :param line: The line.
        """
        self.num_characters += len(line.text) + 1
        if line.is_oversized:
            self.num_characters += MAX_DOCUMENT_CHARACTERS
        if not self.is_oversized:
            self.lines.append(line.text)


def iter_units(lines: Iterable[Line], *, documents: str, heading: str | None) -> Iterator[Unit]:
    """Put lines together.

    :param lines: The lines of one file, in order.
    :param documents: ``file``, ``line``, ``blank-line`` or ``heading``.
    :param heading: For ``heading``: ``wikitext``, or a regular expression for the whole line.
    :returns: Units in the order of the lines.
    :raises ValueError: If there is no such rule.
    """
    if documents == "file":
        return _iter_file(lines)
    if documents == "line":
        return _iter_single(lines)
    if documents == "blank-line":
        return _iter_paragraphs(lines)
    if documents == "heading" and heading is not None:
        return _iter_headed(lines, heading)
    raise ValueError(f"no rule {documents!r} for lines")


def _iter_file(lines: Iterable[Line]) -> Iterator[Unit]:
    unit = Unit(1)
    for line in lines:
        unit.add(line)
    yield unit


def _iter_single(lines: Iterable[Line]) -> Iterator[Unit]:
    for line in lines:
        unit = Unit(line.number)
        unit.add(line)
        yield unit


def _iter_paragraphs(lines: Iterable[Line]) -> Iterator[Unit]:
    unit: Unit | None = None
    for line in lines:
        if _is_blank(line):
            if unit is not None:
                yield unit
            unit = None
            continue
        unit = unit or Unit(line.number)
        unit.add(line)
    if unit is not None:
        yield unit


def _iter_headed(lines: Iterable[Line], heading: str) -> Iterator[Unit]:
    unit: Unit | None = None
    headings = (
        _iter_wikitext(lines)
        if heading == WIKITEXT_HEADING
        else _iter_by_pattern(lines, re.compile(heading))
    )
    for line, match in headings:
        if match is not None:
            if unit is not None:
                yield unit
            groups = match.groupdict()
            unit = Unit(line.number, title=groups.get("title") or "", key=groups.get("id") or "")
        elif not _is_blank(line):
            unit = unit or Unit(line.number)
            unit.add(line)
    if unit is not None:
        yield unit


def _iter_by_pattern(
    lines: Iterable[Line], pattern: re.Pattern[str]
) -> Iterator[tuple[Line, re.Match[str] | None]]:
    for line in lines:
        yield line, pattern.fullmatch(line.text)


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
    return _WIKITEXT_TITLE.fullmatch(line.text.strip()) if is_alone else None


def _is_blank(line: Line) -> bool:
    return not line.is_oversized and not line.text.strip()
