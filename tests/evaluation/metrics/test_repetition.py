"""Rep-n, Diversity and length against counts by hand."""

import pytest

from cog.evaluation.metrics.repetition import (
    METRICS,
    combine_diversity,
    score_repetition,
    score_texts,
)


def test_rep_is_the_share_of_repeated_grams_in_percent() -> None:
    words = ["a", "b", "a", "b", "a", "c"]  # bigrams ab ba ab ba ac: 3 different of 5
    assert score_repetition(words, order=2) == pytest.approx(100 * (1 - 3 / 5))
    assert score_repetition(words, order=3) == pytest.approx(100 * (1 - 3 / 4))
    assert score_repetition(words, order=4) == pytest.approx(0.0)
    assert score_repetition(words[:1], order=2) == 0.0


def test_diversity_is_the_product_over_all_texts() -> None:
    rows = score_texts(["a b a b a c", "one two three four five"])
    sums = rows.sum(axis=0)[None]
    means = rows.mean(axis=0)
    wanted = 100.0 * (1 - means[0] / 100) * (1 - means[1] / 100) * (1 - means[2] / 100)
    assert combine_diversity(sums)[0] == pytest.approx(wanted)
    found = {metric.name: float(metric.combine(sums)[0]) for metric in METRICS}
    assert found["repetition/rep-2"] == pytest.approx(means[0])
    assert found["repetition/words"] == pytest.approx(5.5)


def test_words_and_marks_are_told_apart_whatever_the_script() -> None:
    rows = score_texts(["Don't stop, don't!", "мельница — у реки", ""])
    assert rows[:, -1].tolist() == [5, 4, 0]
