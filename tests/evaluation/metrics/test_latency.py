"""Seconds of batches against values by hand."""

import numpy as np
import pytest

from cog.evaluation.metrics.latency import sum_batches

SECONDS = [
    {"retrieve": 1.0, "decode": 5.0},
    {"retrieve": 1.0, "decode": 5.0},
    {"retrieve": 0.1, "decode": 1.9},
    {"retrieve": 0.1, "decode": 1.9},
    {"retrieve": 0.5, "decode": 2.5},
]


def test_seconds_are_added_up_by_batch() -> None:
    found = sum_batches(SECONDS, [128, 128, 128, 128, 64], batch_size=2)
    assert found.parts == ("retrieve", "decode", "total")
    wanted = [[2.0, 10.0, 12.0], [0.2, 3.8, 4.0], [0.5, 2.5, 3.0]]
    np.testing.assert_allclose(found.seconds, wanted)
    assert found.num_texts.tolist() == [2, 2, 1]
    assert found.num_tokens.tolist() == [256, 256, 64]
    assert found.first_warm == 1


def test_one_batch_stands_for_cold_and_warm() -> None:
    assert sum_batches(SECONDS, [1] * 5, batch_size=8).first_warm == 0


def test_parts_that_differ_are_refused() -> None:
    with pytest.raises(ValueError, match="parts"):
        sum_batches([SECONDS[0], {"decode": 1.0}], [1, 1], batch_size=2)
