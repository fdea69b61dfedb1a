"""The page: self-contained, cited, and safe whatever the texts hold."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from cog.evaluation.compare import compare_results
from cog.evaluation.html import format_number, write_continuation, write_page
from cog.evaluation.records import EvaluatedText, EvaluationResult
from tests.evaluation.making import metric, result, text, whole_metric

VOID = {"meta", "br"}


class Checker(HTMLParser):
    """Collects tags, and fails where they do not close."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.copies: list[str] = []

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


@pytest.fixture
def results() -> list[EvaluationResult]:
    return [
        result(
            name,
            [
                whole_metric("quality/mauve", mean, 0.02),
                metric("repetition/rep-2", [mean * 10, 5.0], higher=False, note="2 texts <only>"),
            ],
        )
        for name, mean in (("wiki", 0.9), ("law", 0.6))
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
    assert '<td class="better">0.9 <small>[0.88, 0.92] n=200</small></td>' in page
    assert "2 texts &lt;only&gt;" in page
    (section,) = re.findall(r'<section class="prompt">.*?</section>', page, re.DOTALL)
    heads = re.findall(r"<h3>(.*?)</h3>", section)
    assert heads == ["wiki", "law", "what really follows"]
    assert (
        len(re.findall("<section", write_page(compare_results(results), results, num_prompts=9)))
        == 2
    )


def test_copies_are_coloured_by_source_and_cited() -> None:
    made = text("p0", corpus="wiki")
    again = replace(made.generation.segments[0], text=" runs again", char_start=90, char_end=101)
    generation = replace(made.generation, segments=(*made.generation.segments, again))
    content = write_continuation(EvaluatedText("p0", "", generation))
    pattern = r'class="copy source" style="--hue: (\d+)" tabindex="0">([^<]*)<sup>(\d)'
    assert re.findall(pattern, content) == [
        ("210", " water runs", "1"),
        ("348", " of the river", "2"),
        ("210", " runs again", "1"),
    ]
    assert "doc-1, characters 4–15" in content  # noqa: RUF001
    assert "probability 0.125" in content
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
    shown = EvaluatedText(hostile, hostile, generation)
    content = write_continuation(shown)
    check(content)
    assert "<script" not in content
    assert "javascript:" not in content


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
