"""The page that compares: sides that differ, written together, with figures under each."""

from urllib.parse import urlencode

from playwright.sync_api import Page, expect

from tests.serve.pages.visiting import COPYING, PREFIX, Visitor


def read_figures(page: Page, side: int) -> dict[str, tuple[str, str]]:
    rows = page.locator(f".lane:nth-child({side}) .figures tr").all()
    cells = [row.locator("th, td").all_text_contents() for row in rows]
    return {name: (value, "".join(difference)) for name, value, *difference in cells}


def test_sides_are_written_together_and_what_differs_is_told(visitor: Visitor) -> None:
    shared = {name: value for name, value in COPYING.items() if name != "max_new_tokens"}
    sides = [
        {"corpus": "village"},
        {"corpus": "other"},
        {"corpus": "village", "system": "transformer"},
    ]
    values = {"prefix": PREFIX, "seed": 3, "max_new_tokens": 48}
    query = urlencode(
        [*values.items(), *(("side", urlencode({**each, **shared})) for each in sides)]
    )
    page = visitor.visit(f"/compare?{query}")
    expect(page.locator(".figures:not([hidden])")).to_have_count(3)
    first, second, third = (read_figures(page, side) for side in (1, 2, 3))
    assert first["Copied"][1] == ""
    assert int(first["Copies"][0]) > 0
    assert second["Copied"][1] != ""
    assert (third["Copies"][0], third["Copied"][0], third["Tokens a step"][0]) == (
        "0",
        "0 %",
        "1.00",
    )
    assert third["Copies"][1] == f"−{first['Copies'][0]}"  # noqa: RUF001
    page.locator(".lane:nth-child(2) .copy").first.click()
    page.wait_for_selector("#source mark.here")
    assert "other" in page.locator("#source .facts").inner_text()
    page.keyboard.press("Escape")
    # a fourth side is as the third; with four there is no fifth
    page.click("#add")
    page.wait_for_selector(".lane:nth-child(4) .setting", state="attached")
    assert page.locator(".lane:nth-child(4) select").nth(1).input_value() == "transformer"
    assert page.is_disabled("#add")
    page.locator(".lane:nth-child(4) .icon-button").click()
    page.locator(".lane:nth-child(3) .icon-button").click()
    assert page.locator(".lane .icon-button:not(:disabled)").count() == 0
    page.click("#write")
    page.wait_for_selector("#stop:disabled")
    assert page.url.count("side=") == 2
