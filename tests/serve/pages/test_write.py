"""The page that writes: what it shows is what was written, and where it stands in its source."""

import json
import re
from dataclasses import fields
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from playwright.sync_api import Page, Route

from cog.corpus.documents import DocumentStore
from cog.decoding.ranking import rank_documents
from cog.evaluation.records import parse_generation
from cog.records import CORPUS, Decoding, Generation
from tests.serve.pages.visiting import COPYING, PREFIX, Visitor, copy_by


def copy_json(page: Page) -> Generation:
    return parse_generation(json.loads(copy_by(page, "#copy-json")))


def test_text_is_shown_with_its_copies_and_sources_ranked_as_in_a_terminal(
    visitor: Visitor,
) -> None:
    page = visitor.write()
    generation = copy_json(page)
    copies = [each for each in generation.segments if each.origin == CORPUS]
    assert len(copies) > 2
    shown = page.eval_on_selector(
        "#written",
        "each => { each.querySelectorAll('sup').forEach(e => e.remove());"
        " return each.textContent; }",
    )
    assert shown == PREFIX + generation.text
    marked = page.locator("#written .copy").all_text_contents()
    assert marked == [each.text.lstrip() for each in copies]
    ranked = rank_documents(generation.segments)
    titles = page.locator("#sources .title").all_text_contents()
    assert titles == [generation.segments[each[0]].title for each in ranked]
    # a source has one colour, in the text and in the list
    first = page.locator("#sources .key").first.get_attribute("class") or ""
    number = (page.locator("#sources .key").first.text_content() or "").split(",")[0].split("-")[0]
    copy = page.locator(f"#written [data-number='{number}']").get_attribute("class") or ""
    assert set(first.split()) - {"key"} == set(copy.split()) - {"copy"}


def test_hovering_and_tabbing_tell_the_source_and_a_key_opens_it_at_the_copy(
    visitor: Visitor,
) -> None:
    page = visitor.write()
    generation = copy_json(page)
    first = next(each for each in generation.segments if each.origin == CORPUS)
    page.hover("#written .copy >> nth=0")
    told = page.locator("#tip").inner_text()
    for each in (first.title, first.licence, f"{first.information:.1f}"):
        assert str(each) in told
    (probability,) = re.findall(r"Probability\s+(\S+)", told)
    assert f"{float(probability):.1e}" == f"{first.probability:.1e}"
    page.mouse.move(0, 0)
    page.wait_for_selector("#tip", state="hidden")
    page.focus("#output")
    page.keyboard.press("Tab")
    page.wait_for_selector("#tip", state="visible")
    assert page.evaluate("document.activeElement.getAttribute('aria-describedby')") == "tip"
    page.keyboard.press("Enter")
    mark = page.wait_for_selector("#source mark.here")
    assert mark is not None
    assert mark.text_content() == first.text
    document = DocumentStore(visitor.server.paths.corpus("village").documents).get_document(
        str(first.document_id)
    )
    assert page.locator("#source .body").text_content() == document.text
    box, outer = mark.bounding_box(), page.locator("#source .body").bounding_box()
    assert box is not None
    assert outer is not None
    assert outer["y"] <= box["y"] <= outer["y"] + outer["height"]
    page.keyboard.press("Escape")
    page.wait_for_selector("#source", state="hidden")
    assert page.evaluate("document.activeElement.className").startswith("copy")


@pytest.mark.slow
def test_address_holds_all_settings_and_gives_the_text_again(visitor: Visitor) -> None:
    page = visitor.write()
    generation = copy_json(page)
    named = parse_qs(urlsplit(page.url).query)
    assert set(named) == {"prefix", "corpus", *(each.name for each in fields(Decoding))}
    again = visitor.visit(f"/?{urlsplit(page.url).query}")
    again.wait_for_selector("#done:not([hidden])")
    assert copy_json(again).text == generation.text
    again.focus("#output")
    again.keyboard.press("n")  # the next seed
    again.wait_for_url("**&seed=1&**")
    again.wait_for_selector("#done:not([hidden])")
    other = copy_json(again)
    assert (other.decoding.seed, other.decoding.phrase_bias) == (1, 30.0)
    assert other.text != generation.text


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({"corpus": "nope"}, "names the corpus nope"),
        ({"top_p": 7}, "Top p: "),
        ({"seed": "abc"}, "Seed: "),
        ({"pool_bias": "maybe"}, "pool_bias must be true or false"),
        ({"colour": 1}, "colour is no setting"),
    ],
)
def test_an_address_that_cannot_be_used_is_told_and_kept(
    visitor: Visitor, words: dict[str, Any], told: str
) -> None:
    values = {"prefix": PREFIX, "corpus": "village", **words}
    page = visitor.visit("/", values)
    page.locator("#error [role=alert]", has_text=told).wait_for()
    assert parse_qs(urlsplit(page.url).query) == {k: [str(v)] for k, v in values.items()}
    assert page.locator("#desk").is_hidden()
    side = {"corpus": "village"} | {k: v for k, v in words.items() if k != "seed"}
    sides = [urlencode(side), "corpus=other"]
    compared = visitor.visit("/compare", {"prefix": PREFIX, "side": sides, **words})
    alert = compared.locator("#error [role=alert]")
    alert.wait_for()
    assert (
        "nope cannot" in alert.inner_text() if told.endswith("nope") else told in alert.inner_text()
    )
    assert not compared.locator(".written").first.inner_text()
    visitor.problems.clear()  # a browser warns of a seed that is no number, and of a 404


def test_a_union_is_written_from_by_its_address(visitor: Visitor) -> None:
    page = visitor.write("village+other")
    assert copy_json(page).corpus == "village+other"


@pytest.mark.slow
def test_markdown_has_a_footnote_for_every_copy(visitor: Visitor) -> None:
    page = visitor.write()
    generation = copy_json(page)
    text, _, notes = copy_by(page, "#copy-markdown").partition("\n\n[^1]: ")
    copies = [each for each in generation.segments if each.origin == CORPUS]
    assert len(re.findall(r"\[\^\d+\]", text)) == len(copies)
    assert re.sub(r"\[\^\d+\]", "", text).replace("\\", "") == PREFIX + generation.text
    sources = {each.document_id for each in copies}
    assert len(notes.strip().split("\n")) == len(sources)
    assert "Licence: CC0-1.0. Changes: " in notes
    assert copy_by(page, "#copy-text") == PREFIX + generation.text


def test_nothing_of_a_corpus_becomes_markup(visitor: Visitor) -> None:
    page = visitor.write("hostile")
    page.on("dialog", lambda dialog: visitor.problems.append(f"alert: {dialog.message}"))
    generation = copy_json(page)
    copy = next(each for each in generation.segments if each.origin == CORPUS)
    assert page.locator("#main script, #main img, #main b:not(kbd), #main i").count() == 0
    page.hover("#written .copy >> nth=0")
    assert "<img src=x" in page.locator("#tip").inner_text()
    page.click("#written .copy >> nth=0")
    page.wait_for_selector("#source mark.here")
    # what turns the order round is written out; the rest is what the document says
    body = page.locator("#source .body").text_content() or ""
    assert "<script>alert(" in body
    assert not re.search("[\u202a-\u202e\u2066-\u2069]", page.locator("#main").inner_text())
    marked = page.locator("#source mark.here").text_content()
    written_out = re.sub(
        "[\u202a-\u202e\u2066-\u2069]", lambda found: f"{ord(found.group()):04X}", copy.text
    )
    assert marked == written_out  # also beyond a character of two units
    page.keyboard.press("Escape")
    ids = {each.document_id for each in generation.segments if each.origin == CORPUS}
    assert {".", ".."} & ids
    for source in page.locator("#sources button").all():
        source.click()
        page.wait_for_selector("#source mark.here")
        page.keyboard.press("Escape")


@pytest.mark.slow
def test_what_cannot_be_written_is_said_with_what_to_run(visitor: Visitor) -> None:
    page = visitor.write()
    manifest = visitor.server.paths.corpus("other").manifest
    page.select_option("#corpus", "other")
    manifest.rename(manifest.with_suffix(".away"))
    try:
        page.click("#write")
        alert = page.locator("#error [role=alert]")
        alert.wait_for()
        assert "other" in alert.inner_text()
        assert page.locator("#error code").inner_text() == "cog index build other"
    finally:
        manifest.with_suffix(".away").rename(manifest)
    visitor.forgive("409")
    page.click("#write")
    page.wait_for_selector("#done:not([hidden])")
    assert page.locator("#error [role=alert]").count() == 0


WATCH = """
window.grown = [];
new MutationObserver(() => {
    const text = document.querySelector("#written .growing")?.textContent;
    if (text && text !== window.grown.at(-1)) window.grown.push(text);
}).observe(document.getElementById("written"), { subtree: true, childList: true });
"""


def test_a_copy_grows_on_the_page(visitor: Visitor) -> None:
    page = visitor.write()
    page.evaluate(WATCH)
    page.click("#write")
    page.wait_for_selector("#done:not([hidden])")
    copies = [each.text for each in copy_json(page).segments if each.origin == CORPUS]
    grown = page.evaluate("window.grown")
    assert grown
    for text in grown:
        assert any(copy.startswith(text) for copy in copies)


def test_where_the_connection_breaks_the_copy_that_grew_stays_and_has_its_source(
    visitor: Visitor,
) -> None:
    page = visitor.write()
    whole = copy_json(page)
    first = next(each for each in whole.segments if each.origin == CORPUS)

    def break_off(route: Route) -> None:
        told = route.fetch().text()
        end = told.index("event: growing")
        route.fulfill(
            body=told[: told.index("\n\n", end) + 2], headers={"content-type": "text/event-stream"}
        )

    page.route("**/generate", break_off)
    page.click("#write")
    page.locator("#error [role=alert]").wait_for()
    marked = page.locator("#written .copy[data-number='1']")
    text = re.sub(r"1$", "", marked.inner_text())
    assert text
    assert first.text.lstrip().startswith(text)
    assert page.locator("#written .growing").count() == 0
    assert page.locator("#sources .title").all_text_contents() == [first.title]


def test_an_empty_page_offers_beginnings(visitor: Visitor) -> None:
    page = visitor.visit("/", {"corpus": "village", **COPYING})
    page.wait_for_selector("#examples:not([hidden])")
    text = page.locator("#examples button").first.inner_text().removesuffix("…")
    page.locator("#examples button").first.click()
    page.wait_for_selector("#done:not([hidden])")
    assert page.input_value("#prefix") == text
    assert page.locator("#examples").is_hidden()
