"""The page of results: only what may be compared is drawn together."""

import pytest

from cog.index.versions.manifest import load_manifest
from tests.evaluation.making import mauve, protocol, rep, result, save, system
from tests.serve.pages.visiting import Visitor


@pytest.mark.slow
def test_groups_are_drawn_apart_and_scores_have_intervals(visitor: Visitor) -> None:
    corpus = visitor.server.paths.corpus("other")
    index = load_manifest(corpus).digest
    rules = protocol(generation_tokens=32)
    for chunks, num_texts in ((16, 200), (0, 75)):
        scores = [rep([7.0 + i % 5 for i in range(num_texts)]), mauve(num_texts - 20, num_texts)]
        ran = system("other", index=index, top_k_documents=chunks)
        save(visitor.server.paths, result("other", scores, protocol=rules, system=ran))
    page = visitor.visit("/results")
    page.wait_for_selector("figure")
    groups = page.locator(".group:has(figure)")
    assert groups.count() == 2
    drawn = [
        page.locator(".chart").nth(i).get_attribute("aria-label")
        for i in range(page.locator(".chart").count())
    ]
    assert not any("village" in str(each) and "other" in str(each) for each in drawn)
    # MAUVE of 200 texts is not drawn with that of 75
    other = groups.filter(has_text="continued by 32")
    assert other.locator("figure", has_text="MAUVE").count() == 2
    assert other.locator("figure", has_text="Diversity").count() == 1
    label = (
        other.locator("figure", has_text="200 texts").locator(".chart").get_attribute("aria-label")
    )
    assert label is not None
    assert "0.9, from 0.88 to 0.92" in label
    other.get_by_text("All scores as numbers").click()
    assert "n = 75" in other.locator("table.scores").inner_text()
