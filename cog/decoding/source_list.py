"""Lists of sources: documents that were copied from go in; Markdown, HTML or BibTeX comes out."""

import html
import re
from collections.abc import Callable, Sequence

from cog.decoding.sources import Source

_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>#|~])")
_WEB = re.compile(r"https?://[^\s<>\"]+")
_BIBTEX = {
    "\\": r"\textbackslash{}",
    "{": r"\textbraceleft{}",
    "}": r"\textbraceright{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{mark: f"\\{mark}" for mark in "&%$#_"},
}


def describe_changes(source: Source) -> str:
    """Say what was taken and that it was changed, as attribution licences ask."""
    copies = f"{source.num_copies} excerpt" + ("s" if source.num_copies != 1 else "")
    words = f"{source.num_words} word" + ("s" if source.num_words != 1 else "")
    return f"Changes: {copies} ({words} in all) joined with other text by a program."


def format_markdown(sources: Sequence[Source]) -> str:
    """Write the list as Markdown, numbered."""
    lines = ["## Sources", ""]
    for number, source in enumerate(sources, start=1):
        title = _link_markdown(source.title, source.url)
        lines.append(f"{number}. {_join(source, title, _link_markdown, _escape_markdown)}")
    return "\n".join([*lines, "" if sources else "Nothing was copied.\n"])


def format_html(sources: Sequence[Source]) -> str:
    """Write the list as a piece of HTML: a section with an ordered list."""
    items = [
        f"    <li>{_join(source, link_html(source.title, source.url), link_html, html.escape)}</li>"
        for source in sources
    ]
    body = ["  <ol>", *items, "  </ol>"] if items else ["  <p>Nothing was copied.</p>"]
    return "\n".join(['<section class="sources">', "  <h2>Sources</h2>", *body, "</section>", ""])


def format_bibtex(sources: Sequence[Source]) -> str:
    """Write the list as BibTeX, one ``@misc`` per source."""
    entries: list[str] = []
    keys: set[str] = set()
    for source in sources:
        key = _make_key(source, keys)
        keys.add(key.lower())
        terms = f"Licence: {source.licence}" if source.licence else ""
        terms += f" ({source.licence_url})" if source.licence_url else ""
        note = f"{terms}. {describe_changes(source)}" if terms else describe_changes(source)
        values = {
            "title": f"{{{_escape_bibtex(source.title)}}}",
            "author": f"{{{_escape_bibtex(source.attribution)}}}" if source.attribution else "",
            "howpublished": f"Corpus {_escape_bibtex(source.corpus)}, document "
            + _escape_bibtex(source.document_id),
            "url": source.url.replace("{", "%7B").replace("}", "%7D"),
            "note": _escape_bibtex(note),
        }
        lines = [f"  {name} = {{{value}}}" for name, value in values.items() if value]
        entries.append(f"@misc{{{key},\n" + ",\n".join(lines) + "\n}\n")
    return "\n".join(entries)


FORMATS: dict[str, Callable[[Sequence[Source]], str]] = {
    "markdown": format_markdown,
    "html": format_html,
    "bibtex": format_bibtex,
}


def _join(
    source: Source, title: str, link: Callable[[str, str], str], escape: Callable[[str], str]
) -> str:
    parts = [title]
    if source.attribution:
        parts.append(f"by {escape(source.attribution)}")
    if source.title != source.document_id:
        parts.append(f"document {escape(source.document_id)} of {escape(source.corpus)}")
    else:
        parts.append(f"of {escape(source.corpus)}")
    terms = f" Licence: {link(source.licence, source.licence_url)}." if source.licence else ""
    return f"{', '.join(parts)}.{terms} {escape(describe_changes(source))}"


def _link_markdown(text: str, url: str) -> str:
    shown = _escape_markdown(text)
    is_safe = _WEB.fullmatch(url) is not None
    return f"[{shown}](<{url}>)" if is_safe else shown


def _escape_markdown(text: str) -> str:
    return _MARKDOWN.sub(r"\\\1", " ".join(text.split()))


def link_html(text: str, url: str) -> str:
    """Write a text as a link, where its address, which may be empty, is one of the web."""
    shown = html.escape(text)
    is_safe = _WEB.fullmatch(url) is not None
    return f'<a href="{html.escape(url)}">{shown}</a>' if is_safe else shown


def _escape_bibtex(text: str) -> str:
    return "".join(_BIBTEX.get(mark, mark) for mark in " ".join(text.split()))


def _make_key(source: Source, taken: set[str]) -> str:
    key = re.sub(r"[^A-Za-z0-9.:-]+", "-", f"{source.corpus}:{source.document_id}").strip("-")
    number, candidate = 1, key
    while candidate.lower() in taken:  # BibTeX takes keys that differ in case only for one
        number += 1
        candidate = f"{key}-{number}"
    return candidate
