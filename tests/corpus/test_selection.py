"""Seen texts: against a plain set, across many merges of what is new into what is old."""

import random

import pytest

from cog.corpus import selection
from cog.corpus.selection import SeenTexts


@pytest.mark.parametrize("merge_at", [1, 7, 1 << 16])
def test_seen_texts_are_told_as_a_set_tells_them(
    monkeypatch: pytest.MonkeyPatch, merge_at: int
) -> None:
    monkeypatch.setattr(selection, "_MERGE_AT", merge_at)
    generator = random.Random(0)
    texts = [f"text {generator.randrange(1500)}" for _ in range(3000)]
    seen = SeenTexts()
    plain: set[str] = set()
    for text in texts:
        assert seen.add(text) == (text not in plain)
        plain.add(text)
    assert len(plain) > 1000
