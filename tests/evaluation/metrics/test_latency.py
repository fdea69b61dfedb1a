"""The latency summary against values by hand."""

import pytest

from cog.evaluation.metrics.latency import summarise_latency

SECONDS = [
    {"retrieve": 1.0, "gather": 2.0, "decode": 5.0},
    {"retrieve": 0.1, "gather": 0.1, "decode": 1.8},
    {"retrieve": 0.3, "gather": 0.1, "decode": 3.6},
]


def test_first_text_is_cold_and_the_others_warm() -> None:
    found = summarise_latency(SECONDS, [128, 128, 128])
    assert found.cold == {"retrieve": 1.0, "gather": 2.0, "decode": 5.0, "total": 8.0}
    assert found.warm["decode"].mean == pytest.approx(2.7)
    assert found.warm["total"].median == pytest.approx(3.0)
    assert found.warm["total"].high == pytest.approx(2.0 + 0.95 * 2.0)
    assert found.tokens_per_second == pytest.approx(384 / 14)


def test_one_text_has_no_warm_side() -> None:
    assert summarise_latency(SECONDS[:1], [128]).warm == {}


def test_parts_that_differ_are_refused() -> None:
    with pytest.raises(ValueError, match="parts"):
        summarise_latency([SECONDS[0], {"decode": 1.0}], [1, 1])
