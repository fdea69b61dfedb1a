"""Texts in notebooks: a cited text goes in, HTML with its copies in the colours of their sources.

Colours are translucent and everything else is inherited, so that light and dark pages, by their own
theme or by ``prefers-color-scheme``, keep their own ink and paper. Styles stand in the elements:
many viewers of notebooks drop style sheets.
"""

from html import escape
from typing import TYPE_CHECKING

from cog.decoding.ranking import choose_hue, get_key
from cog.decoding.source_list import link_html
from cog.records import CORPUS, Segment

if TYPE_CHECKING:
    from cog.api.text import Source, Text


def write_text(text: "Text") -> str:
    """Write a text and the list of its sources.

    :param text: The text.
    :returns: HTML; whatever comes from documents or the prefix is escaped.
    """
    sources = text.sources
    numbers = {get_key(source.copies[0]): number for number, source in enumerate(sources, start=1)}
    parts = [_write_segment(segment, numbers) for segment in text.segments]
    listed = "".join(
        f"<li>{_write_source(source, number)}</li>"
        for number, source in enumerate(sources, start=1)
    )
    ordered = f'<ol style="font-size: 0.9em; opacity: 0.85">{listed}</ol>' if listed else ""
    return (
        '<div class="cog-text"><p style="white-space: pre-wrap; overflow-wrap: anywhere">'
        f"<b>{escape(text.prefix)}</b>{''.join(parts)}</p>{ordered}</div>"
    )


def _write_segment(segment: Segment, numbers: dict[tuple[str | None, str | None], int]) -> str:
    if segment.origin != CORPUS:
        return escape(segment.text)
    number = numbers[get_key(segment)]
    where = f"{segment.title or segment.document_id}, characters {segment.char_start}"
    return (
        f'<span style="{_colour(number)}" title="{escape(f"{where} to {segment.char_end}")}">'
        f"{escape(segment.text)}<sup>{number}</sup></span>"
    )


def _write_source(source: "Source", number: int) -> str:
    name = link_html(source.title or source.document_id, source.url)
    document_id = source.document_id if source.title != source.document_id else ""
    known = " · ".join(
        escape(part) for part in (document_id, source.corpus, source.licence) if part
    )
    return f'<span style="{_colour(number)}">{name}</span> {known}'


def _colour(number: int) -> str:
    return f"background: hsl({choose_hue(number)} 80% 50% / 28%); border-radius: 0.2em"
