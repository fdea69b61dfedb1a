"""The pages of corpora: the registry as it is, also after a switch elsewhere."""

import os
import subprocess
import sys

import pytest
from playwright.sync_api import expect

from cog.index.versions.manifest import load_manifest
from cog.registry import load_active
from tests.serve.pages.visiting import Visitor

ON = "tr.is-active a"


def test_switch_in_another_process_shows_and_a_button_switches_back(visitor: Visitor) -> None:
    paths = visitor.server.paths
    page = visitor.visit("/corpora")
    page.wait_for_selector(ON)
    assert page.locator(ON).all_text_contents() == ["village"]
    words = ["-m", "cog.cli.main", "--project", str(paths.root), "switch", "other"]
    subprocess.run([sys.executable, *words], check=True, capture_output=True, env=os.environ.copy())
    expect(page.locator(ON)).to_have_text("other")
    page.click("text=Roll back to village")
    dialog = page.locator("dialog")
    assert load_manifest(paths.corpus("other")).digest[:12] in dialog.inner_text()
    dialog.get_by_role("button", name="Cancel").click()
    assert load_active(paths).corpus == "other"  # type: ignore[union-attr]
    page.click("text=Roll back to village")
    dialog.get_by_role("button", name="Roll back").click()
    page.wait_for_selector(".message.good")
    assert load_active(paths).corpus == "village"  # type: ignore[union-attr]
    page.click("button[aria-label='Switch on hostile']")
    page.keyboard.press("Enter")  # the dialogue is there to be confirmed
    expect(page.locator(ON)).to_have_text("hostile")
    assert load_active(paths).corpus == "hostile"  # type: ignore[union-attr]


@pytest.mark.slow
def test_page_of_a_corpus_tells_all_of_it(visitor: Visitor) -> None:
    paths = visitor.server.paths
    page = visitor.visit("/corpora/hostile")
    page.wait_for_selector("#doctor .content :not(.soft)")
    manifest = load_manifest(paths.corpus("hostile"))
    assert manifest.digest in page.locator("#build").inner_text()
    assert "People of hostile" in page.locator("#card").inner_text()
    assert "<script>alert(" in page.locator("#samples").inner_text()
    assert page.locator("#main script, #main img").count() == 0
    assert manifest.digest[:12] in page.locator("#versions").inner_text()
    page.click("#versions form button")
    page.wait_for_selector("#versions dl")
    assert "6 the same" in page.locator("#versions dl").inner_text()
    finding = page.locator("#doctor").inner_text()
    assert "hostile: must be root hostile" in finding
    assert "cog upgrade" in finding


@pytest.mark.slow
def test_corpus_that_is_not_built_says_what_builds_it(visitor: Visitor) -> None:
    page = visitor.visit("/corpora/hamlet")
    page.wait_for_selector("#build .command")
    assert "cog index build hamlet" in page.locator("#build").inner_text()
    page.wait_for_selector("#doctor .content :not(.soft)")
    missing = visitor.visit("/corpora/nowhere")
    assert "nowhere" in missing.locator("main").inner_text()
    visitor.forgive("404")
