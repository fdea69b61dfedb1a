"""The page of results: only what may be compared is drawn together."""

import re

import pytest

from cog.evaluation.metrics.catalogue import METRICS
from cog.index.versions.manifest import load_manifest
from cog.serve.answers import load_static
from tests.evaluation.making import mauve, protocol, rep, result, save, system
from tests.serve.pages.visiting import Visitor


def test_what_is_drawn_are_scores_that_evaluations_have() -> None:
    script = load_static()["results.js"].decode()
    drawn = re.findall(r'^  "(\S+/\S+)": \[', script, flags=re.MULTILINE)
    assert len(drawn) > 3
    assert set(drawn) <= set(METRICS)


@pytest.mark.slow
def test_groups_are_drawn_apart_and_scores_have_intervals(visitor: Visitor) -> None:
    corpus = visitor.server.paths.corpus("other")
    index = load_manifest(corpus).digest
    rules = protocol(generation_tokens=32)
    for chunks, num_texts in ((16, 200), (0, 75)):
        scores = [rep([7.0 + i % 5 for i in range(num_texts)]), mauve(num_texts - 20, num_texts)]
        ran = system("other", index=index, top_k_documents=chunks)
        values = {"protocol": rules, "system": ran, "prompts_digest": f"{num_texts:032}"}
        save(visitor.server.paths, result("other", scores, **values))
    page = visitor.visit("/results")
    page.wait_for_selector("figure")
    groups = page.locator(".group:has(figure)")
    assert groups.count() == 2
    drawn = [
        page.locator(".chart").nth(i).get_attribute("aria-label")
        for i in range(page.locator(".chart").count())
    ]
    assert not any("village" in str(each) and "other" in str(each) for each in drawn)
    other = groups.filter(has_text="continued by 32")
    label = other.locator("figure", has_text="MAUVE").locator(".chart").get_attribute("aria-label")
    assert re.search(r"from 0\.\d+ to 0\.\d+", label or "")
    other.get_by_text("All scores as numbers").click()
    # MAUVE of 200 texts is not drawn with that of 75, but that of the first 75 of them
    (mauve_row,) = other.locator("table.scores tr", has_text="MAUVE").all_inner_texts()
    (other_row,) = other.locator("table.scores tr", has_text="rep-2").all_inner_texts()
    assert re.findall(r"n = (\d+)", mauve_row) == ["75", "75"]
    assert sorted(re.findall(r"n = (\d+)", other_row)) == ["200", "75"]
    assert "of each the first 75 documents count" in page.locator("main").inner_text()
