"""Pages of HTML: a raw file goes in, its title and the lines that a reader sees come out."""

from collections.abc import Iterator

from cog.corpus.decoding import MAX_LINE_CHARACTERS, Line, RawFile, iter_decoded
from cog.corpus.tally import Tally


def read_page(file: RawFile, encoding: str, *, tally: Tally) -> tuple[str, Iterator[Line]]:
    """Read a page as a browser shows it: no tags, scripts and styles; lists and tables laid out.

    Gives the title, and lines that are numbered as they are shown.
    """
    from inscriptis.css_profiles import STRICT_CSS_PROFILE
    from inscriptis.html_engine import Inscriptis
    from inscriptis.model.config import ParserConfig
    from lxml.etree import ParserError
    from lxml.html import HTMLParser, document_fromstring

    pieces: list[str] = []
    num_characters = 0
    for piece in iter_decoded(file, encoding, tally=tally):
        pieces.append(piece)
        num_characters += len(piece)
        if num_characters > MAX_LINE_CHARACTERS:
            problem = f"over {MAX_LINE_CHARACTERS} characters of HTML"
            tally.reject(file.name, problem, reason="too-long")
            return "", iter(())
    try:
        # bytes and their encoding, so that what a page declares of itself does not count
        parser = HTMLParser(encoding="utf-8", huge_tree=True)
        page = document_fromstring("".join(pieces).encode(), parser=parser)
    except ParserError:  # nothing in it
        return "", iter(())
    title = " ".join((page.findtext(".//title") or "").split())
    text = Inscriptis(page, ParserConfig(css=STRICT_CSS_PROFILE)).get_text()
    return title, (Line(number, line) for number, line in enumerate(text.split("\n"), start=1))
