"""One line about a source: a copied segment goes in, a line that fits comes out."""

from itertools import groupby

from rich.cells import cell_len, set_cell_size
from rich.style import Style
from rich.text import Text

from cog.records import Segment

LEAST_TITLE = 24  # columns of a title for which the licence makes room


def render_source(segment: Segment, *, is_union: bool, width: int | None) -> Text:
    """Name the source of a copy: title, document id, licence and address, in one line.

    Where that is too long, the address goes, then the title is shortened, then the licence goes; a
    width of None leaves nothing out. Of a union the corpus is named, too.
    """
    document_id, url = segment.document_id or "", segment.url or ""
    title = " ".join((segment.title or "").split())
    if title == document_id:
        title = ""
    parts = [document_id, segment.corpus if is_union else None, segment.licence, url]
    details = _join(parts)
    if width is not None:
        title, details = _fit(title, parts, room=width)
    style = Style(link=url or None)
    if not title:
        title, _, details = details.partition(" · ")
    return Text.assemble((title, style), (f" · {details}" if details else "", "dim"))


def _fit(title: str, parts: list[str | None], *, room: int) -> tuple[str, str]:
    for num_parts, least in ((4, len(title) * 2), (3, LEAST_TITLE), (2, 0)):
        details = _join(parts[:num_parts])
        left = room - cell_len(f" · {details}" if title else details)
        if left >= min(cell_len(title), least):
            break
    if left >= min(cell_len(title), 4):
        return shorten(title, left), details
    return "", shorten(details, room)


def _join(parts: list[str | None]) -> str:
    return " · ".join(part for part in parts if part)


def shorten(text: str, width: int) -> str:
    """Leave out the middle of what is too long."""
    if cell_len(text) <= width:
        return text
    room = max(0, width - 1)
    end = text
    while cell_len(end) > room // 2:
        end = end[1:]
    return f"{set_cell_size(text, room - cell_len(end)).rstrip()}…{end.lstrip()}"


def join_numbers(numbers: list[int]) -> str:
    """Write numbers as short as can be: ``1,3-5`` for 1, 3, 4 and 5."""
    parts = []
    for _, pairs in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        run = [str(number) for _, number in pairs]
        parts.append(f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(run))
    return ",".join(parts)
