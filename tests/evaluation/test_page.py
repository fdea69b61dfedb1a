"""The page: self-contained, cited, and safe whatever the texts hold."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from cog.evaluation.compare import compare_results
from cog.evaluation.page import format_number, write_page
from cog.evaluation.records import EvaluatedText, EvaluationResult, SeedResult
from tests.evaluation.making import mauve, rep, result, text

VOID = {"meta", "br"}


class Checker(HTMLParser):
    """Collects tags, and fails where they do not close."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def check(page: str) -> Checker:
    checker = Checker()
    checker.feed(page)
    assert checker.open == []
    return checker


def page_of(*texts: EvaluatedText) -> str:
    made = result("wiki", [rep([1.0, 2.0])], seeds=(SeedResult(0, texts),))
    return write_page(compare_results([made]), [made], num_prompts=9)


@pytest.fixture
def results() -> list[EvaluationResult]:
    return [
        result(
            name,
            [
                mauve(alike, 100),
                rep([alike / 10 + i % 3 for i in range(100)], [1.0, 2.0] * 50, note="2 <only>"),
            ],
        )
        for name, alike in (("wiki", 100), ("law", 20))
    ]


def test_page_needs_nothing_beside_itself(results: list[EvaluationResult]) -> None:
    page = write_page(compare_results(results), results, num_prompts=5)
    found = check(page)
    links = [value for name, value in found.attributes if name in ("src", "href")]
    assert set(links) == {"https://a.example/r"}  # citations only
    assert "@import" not in page
    assert "url(" not in page


def test_page_shows_scores_and_texts_side_by_side(results: list[EvaluationResult]) -> None:
    page = write_page(compare_results(results), results, num_prompts=1)
    assert re.search(r'<td class="better">1\s+<small>n=100|<td class="better">1\s+<small>\[', page)
    assert "2 &lt;only&gt;" in page
    assert "<td>1.5</td>" in page  # what really follows
    (section,) = re.findall(r'<section class="prompt">.*?</section>', page, re.DOTALL)
    assert re.findall(r"<h3>(.*?)</h3>", section) == ["wiki", "law", "what really follows"]


def test_copies_are_coloured_by_source_and_cited() -> None:
    made = text("p0", corpus="wiki")
    again = replace(made.generation.segments[0], text=" runs again", char_start=90, char_end=101)
    generation = replace(made.generation, segments=(*made.generation.segments, again))
    content = page_of(EvaluatedText("p0", "", generation))
    check(content)
    pattern = r'class="copy source" style="--hue: (\d+)" tabindex="0">([^<]*)<sup>(\d)'
    assert re.findall(pattern, content) == [
        ("210", " water runs", "1"),
        ("348", " of the river", "2"),
        ("210", " runs again", "1"),
    ]
    assert "doc-1, characters 4–15" in content  # noqa: RUF001
    assert "probability 0.125" in content
    assert content.count("<li>") == 2


def test_documents_of_two_corpora_that_share_an_id_are_told_apart() -> None:
    made = text("p0", corpus="wiki")
    first, token, _ = made.generation.segments
    segments = (replace(first, corpus="wiki"), token, replace(first, corpus="law"))
    content = page_of(replace(made, generation=replace(made.generation, segments=segments)))
    check(content)
    assert re.findall(r"runs<sup>(\d)", content) == ["1", "2"]
    assert content.count("<li>") == 2


def test_nothing_in_a_text_becomes_markup() -> None:
    hostile = '<script>alert("x")</script>'
    made = text("p0", corpus="wiki", words=hostile)
    segments = tuple(
        replace(segment, title=hostile, document_id=hostile, licence=hostile, url="javascript:x()")
        if segment.origin == "corpus"
        else replace(segment, text=hostile)
        for segment in made.generation.segments
    )
    generation = replace(made.generation, segments=segments, prefix=hostile)
    content = page_of(EvaluatedText(hostile, hostile, generation))
    check(content)
    assert "<script" not in content
    assert "javascript:" not in content


def test_only_addresses_of_the_web_become_links() -> None:
    made = text("p0", corpus="wiki")
    for url, is_link in (("HTTPS://a.example/b", True), ("http://[", True), ("ftp://a/b", False)):
        segments = tuple(replace(each, url=url) for each in made.generation.segments)
        content = page_of(replace(made, generation=replace(made.generation, segments=segments)))
        assert (f'href="{url}"' in content) is is_link


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (0.0, "0"),
        (0.12345, "0.123"),
        (9.876, "9.88"),
        (12.34, "12.3"),
        (1234.5, "1,234"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
    ],
)
def test_numbers_have_three_digits(value: float, wanted: str) -> None:
    assert format_number(value) == wanted
