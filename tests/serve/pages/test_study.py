"""Blind studies on pages: made, judged with the keyboard alone, and counted."""

import re
import shutil

from playwright.sync_api import expect

from tests.evaluation.making import protocol
from tests.serve.pages.visiting import Visitor

KEYS = ("ArrowLeft", "n", "b")


def test_study_is_made_judged_with_keys_and_counted(visitor: Visitor) -> None:
    page = visitor.visit("/study")
    page.wait_for_selector("#first")
    group = page.locator("#group option", has_text=protocol().digest[:8]).get_attribute("value")
    page.select_option("#group", group)
    page.fill("#num", "4")
    page.select_option("#first", "village")
    page.select_option("#second", "village")
    page.click("text=Make the study")
    expect(page.locator("main")).to_contain_text("the sides must differ")
    visitor.forgive("status of 4")
    page.select_option("#second", "village:cog-tokens")
    page.click("text=Make the study")
    page.wait_for_selector("#name")
    page.fill("#name", "Anna <b>")
    page.keyboard.press("Enter")
    link = page.locator("td a", has_text="Open").get_attribute("href")
    judge = visitor.visit(str(link))
    judge.wait_for_selector("#question")
    seen = [judge.locator("body").inner_text()]
    assert not judge.locator("nav").is_visible()
    for number in range(7):  # two cases of three questions, and one answer more
        judge.keyboard.press(KEYS[number % 3])
        seen.append(judge.locator("main").inner_text())
    expect(judge.locator("#done")).to_contain_text("2 of 4")
    judge.keyboard.press("Backspace")
    assert judge.locator("[data-answer='A']").get_attribute("aria-pressed") == "true"
    third = judge.locator(".prompt").get_attribute("data-item")
    judge.keyboard.press("b")  # said otherwise
    expect(judge.locator("#question")).to_contain_text("question 2")
    # another day: it goes on where it stopped
    again = visitor.visit(str(link))
    again.wait_for_selector("#question")
    assert again.locator(".prompt").get_attribute("data-item") == third
    assert "question 2 of 3" in again.locator("#question").inner_text()
    for _ in range(5):
        again.keyboard.press("b")
    again.wait_for_selector("text=All cases are judged")
    shown = "\n".join(seen)
    assert "cog" not in shown.removeprefix("cog").replace("cog\n", "")
    assert "transformer" not in shown
    assert judge.locator(".copy, .key, mark").count() == 0

    page.reload()
    page.wait_for_selector("text=4 of 4")
    assert "Anna <b>" in page.locator("tbody").inner_text()
    page.click("summary")
    page.wait_for_selector(".verdict")
    assert page.locator(".verdict").count() == 3
    assert re.search(
        r"p = \S+ · .*4 cases · 1 judging", page.locator(".verdict").first.inner_text()
    )
    with page.expect_download() as download:
        page.click("text=Answers as CSV")
    lines = download.value.path().read_text().splitlines()
    assert lines[0] == "item,fluency,informativeness,overall"
    assert len(lines) == 5
    answers = {line.split(",")[0]: line.split(",")[1:] for line in lines[1:]}
    assert answers[str(third)] == ["B", "B", "B"]


def test_a_damaged_study_is_named_and_does_not_hide_the_page(visitor: Visitor) -> None:
    damaged = visitor.server.paths.studies / "damaged" / "key.json"
    damaged.parent.mkdir(parents=True)
    damaged.write_text("{")
    page = visitor.visit("/study")
    page.wait_for_selector("#first")  # a new one can be made
    assert "studies/damaged/key.json" in page.locator("[role=alert]").inner_text()
    shutil.rmtree(damaged.parent)
