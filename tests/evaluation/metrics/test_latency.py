"""Latency: batches are added up, and the first one is cold."""

from dataclasses import replace

import pytest

from cog.evaluation.metrics.latency import SPEED, TOTAL, sum_batches
from cog.evaluation.records import SeedResult
from tests.evaluation.making import text


def timed(*seconds: float) -> SeedResult:
    texts = []
    for i, each in enumerate(seconds):
        made = text(f"p{i}", corpus="village")
        parts = {"retrieve": each / 4, "decode": 3 * each / 4}
        texts.append(replace(made, generation=replace(made.generation, seconds=parts)))
    return SeedResult(0, tuple(texts))


def test_warm_batches_are_added_up() -> None:
    rows = sum_batches(timed(9.0, 9.0, 1.0, 1.0, 2.0), batch_size=2)
    assert rows.tolist() == [[2.0, 2.0, 18.0], [2.0, 1.0, 9.0]]
    sums = rows.sum(axis=0)[None]
    assert TOTAL.combine(sums)[0] == pytest.approx(4 / 3)
    assert SPEED.combine(sums)[0] == pytest.approx(27 / 4)


def test_a_single_batch_stands_for_itself() -> None:
    assert sum_batches(timed(1.0, 3.0), batch_size=5).tolist() == [[4.0, 2.0, 18.0]]
