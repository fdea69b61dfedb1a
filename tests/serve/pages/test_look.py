"""How the pages look: at both widths, light and dark, to people who see or hear otherwise."""

from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from tests.serve.pages.visiting import COPYING, NARROW, PREFIX, WIDE, Visitor, find_wide

TEXT = {"prefix": PREFIX, "corpus": "village", **COPYING}
# what must be there before a page is looked at
PAGES: dict[str, tuple[str, dict[str, Any] | None]] = {
    "/": ("#done:not([hidden])", TEXT),
    "/compare": (".lane:nth-child(2) .figures:not([hidden])", {"prefix": PREFIX}),
    "/corpora": ("table", None),
    "/corpora/village": ("#doctor .content :not(.soft)", None),
    "/results": ("figure", None),
    "/study": ("#first", None),
    "/docs": ("section", None),
}


def find_faults(page: Page) -> list[str]:
    found = Axe().run(page).response["violations"]
    return [
        f"{each['id']}: {node['target']} {node['failureSummary']}"
        for each in found
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"]
    ]


def look(visitor: Visitor, path: str, **window: Any) -> Page:  # noqa: ANN401
    ready, values = PAGES[path]
    page = visitor.visit(path, values, **window)
    page.wait_for_selector(ready)
    return page


def test_page_that_writes_has_no_serious_fault_and_fits_a_telephone(visitor: Visitor) -> None:
    page = look(visitor, "/", size=NARROW, scheme="dark")
    assert find_wide(page) == []
    page.click("#written .copy >> nth=0")
    page.wait_for_selector("#source mark.here")
    mark = page.locator("#source mark.here").bounding_box()
    assert mark is not None
    assert 0 <= mark["y"] <= NARROW[1]
    assert find_faults(page) == []


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize("path", PAGES)
def test_pages_fit_and_have_no_serious_fault(
    visitor: Visitor, path: str, size: tuple[int, int], scheme: str
) -> None:
    page = look(visitor, path, size=size, scheme=scheme)
    assert find_wide(page) == []
    for each in page.locator("details > summary").all():
        if each.is_visible():
            each.click()
    assert find_wide(page) == []
    assert find_faults(page) == []


@pytest.mark.slow
@pytest.mark.parametrize("path", PAGES)
def test_everything_is_reached_and_seen_with_the_keyboard(visitor: Visitor, path: str) -> None:
    page = look(visitor, path)
    wanted = page.evaluate(
        "[...document.querySelectorAll('a[href], button, input, select, textarea, summary,"
        ' [tabindex="0"]\')].filter(e => e.checkVisibility() && !e.disabled &&'
        " e.tabIndex >= 0).length"
    )
    page.evaluate("document.activeElement.blur(); window.reached = new Set(); window.unseen = []")
    for _ in range(wanted + 2):
        page.keyboard.press("Tab")
        page.evaluate(
            "(() => { const e = document.activeElement, s = getComputedStyle(e);"
            " if (e === document.body) return; reached.add(e);"
            " if (s.outlineStyle === 'none' || s.outlineWidth === '0px')"
            " unseen.push(e.outerHTML); })()"
        )
    assert page.evaluate("reached.size") >= wanted
    assert page.evaluate("unseen") == []


@pytest.mark.slow
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_nothing_moves_while_a_text_comes(visitor: Visitor, size: tuple[int, int]) -> None:
    page = visitor.visit("/", {"corpus": "village", **COPYING, "max_new_tokens": 120}, size=size)
    page.wait_for_selector("#write:not([disabled])")
    page.evaluate(
        "window.moved = []; new PerformanceObserver(list => list.getEntries().forEach(entry =>"
        " entry.sources.forEach(source => source.node && moved.push(["
        "source.node.id || source.node.className || source.node.nodeName,"
        " source.previousRect.y, source.currentRect.y])))).observe({type: 'layout-shift'})"
    )
    page.fill("#prefix", PREFIX)
    page.click("#write")
    page.wait_for_selector("#done:not([hidden])")
    moved = page.evaluate("moved")  # the caret goes before the text
    assert [each for each in moved if each[1] != each[2] and each[0] != "caret"] == []
