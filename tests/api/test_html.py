"""What a notebook shows of a text: copies in the colours of their sources, all of it escaped."""

import re
from html.parser import HTMLParser

from cog.api.text import Text
from cog.records import CORPUS, VOCABULARY, Decoding, Generation, Segment

EVIL = "<script>alert(\"1\")</script> & 'so on'"


def make_copy(text: str, document_id: str, **values: str) -> Segment:
    told = {"title": "", "licence": "CC0-1.0", "url": "", "corpus": "village", **values}
    return Segment(
        text, CORPUS, 0.5, document_id=document_id, char_start=3, char_end=3 + len(text), **told
    )


def make_text(*segments: Segment, prefix: str = "A prefix") -> Text:
    whole = "".join(segment.text for segment in segments)
    decoding = Decoding()
    return Text(Generation(prefix, whole, "village", "d", "m", decoding, 1, 1, {}, segments), 0)


class Reader(HTMLParser):
    """Collects the elements, and checks that they are closed in order."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def finish(self) -> None:
        self.close()
        assert self._open == []


def read(text: Text) -> Reader:
    reader = Reader()
    reader.feed(text._repr_html_())
    reader.finish()
    return reader


def test_copies_have_the_colour_and_the_number_of_their_source() -> None:
    text = make_text(
        make_copy(" of the mill", "a", title="Mill"),
        Segment(",", VOCABULARY, 0.2),
        make_copy(" by", "b", title="Pond"),
        make_copy(" and the old wheel", "a", title="Mill"),
    )
    shown = text._repr_html_()
    numbers = re.findall(r"<sup>(\d)</sup>", shown)
    assert numbers == ["1", "2", "1"]
    spans = re.findall(r'<span style="background: (hsl[^;]+);[^"]*" title="([^"]+)"', shown)
    assert spans[0][0] == spans[2][0] != spans[1][0]
    assert spans[0][1] == "Mill, characters 3 to 15"
    assert shown.count("<li>") == 2
    assert ">,<" in shown


def test_whatever_is_in_documents_stays_text() -> None:
    text = make_text(
        make_copy(EVIL, EVIL, title=EVIL, licence=EVIL, url="javascript:alert(1)", corpus=EVIL),
        Segment(EVIL, VOCABULARY, 0.2),
        prefix=EVIL,
    )
    reader = read(text)
    assert {name for name, _ in reader.found} == {"div", "p", "b", "span", "sup", "ol", "li"}
    assert "".join(reader.texts).count(EVIL) == 6  # prefix, two segments; title, corpus, licence
    title = next(values["title"] for _, values in reader.found if "title" in values)
    assert title == f"{EVIL}, characters 3 to {3 + len(EVIL)}"


def test_sources_link_to_the_web_only() -> None:
    links = [
        values["href"]
        for name, values in read(
            make_text(
                make_copy("x", "a", url="https://example.org/?a=1&b=2"),
                make_copy("y", "b", url="data:text/html,x"),
                make_copy("z", "c", url='https://example.org/"><b>'),
            )
        ).found
        if name == "a"
    ]
    assert links == ["https://example.org/?a=1&b=2"]


def test_a_text_without_copies_has_no_list() -> None:
    reader = read(make_text(Segment(" goes on", VOCABULARY, 0.2)))
    assert "ol" not in {name for name, _ in reader.found}
    assert "".join(reader.texts) == "A prefix goes on"
