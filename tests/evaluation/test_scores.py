"""Scores whose intervals need more than a bootstrap over prompts."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from cog.evaluation.metrics.contamination import Shares
from cog.evaluation.records import MetricValue, SeedResult
from cog.evaluation.scores import score_contamination, score_latency
from tests.evaluation.making import text


def timed(batches: Sequence[float], *, batch_size: int = 4) -> SeedResult:
    """Texts whose batches took so many seconds a text, a tenth of it to retrieve."""
    texts = []
    for i, seconds in enumerate(seconds for seconds in batches for _ in range(batch_size)):
        made = text(f"p{i}", corpus="village")
        parts = {"retrieve": 0.1 * seconds, "decode": 0.9 * seconds}
        texts.append(replace(made, generation=replace(made.generation, seconds=parts)))
    return SeedResult(0, tuple(texts))


def named(scores: Sequence[MetricValue]) -> dict[str, MetricValue]:
    return {score.name.partition("/")[2]: score for score in scores}


def test_latency_counts_batches_and_tells_cold_from_warm() -> None:
    seed = timed([9.0, 1.0, 2.0, 1.0, 2.0, 4.0])
    found = named(score_latency([seed], batch_size=4, plain_seconds=0.5))
    assert found["total"].mean == pytest.approx(2.0)
    assert found["retrieve"].mean == pytest.approx(0.2)
    assert found["decode"].mean == pytest.approx(1.8)
    assert found["total"].num_texts == len(found["total"].per_prompt) == 20
    assert found["total"].per_prompt[:5] == pytest.approx([1.0, 1.0, 1.0, 1.0, 2.0])
    assert (found["cold"].mean, found["cold-retrieve"].mean) == pytest.approx((9.0, 0.9))
    assert found["cold"].num_texts == 4
    assert found["transformers"].mean == 0.5
    assert found["ratio"].mean == pytest.approx(4.0)
    assert found["ratio"].low == pytest.approx(2 * found["total"].low)
    # five independent values, not twenty: their mean's standard error is about 0.5
    assert found["total"].high - found["total"].low > 1.5
    assert found["tokens-per-second"].mean == pytest.approx(9 / 2.0)


def test_few_batches_have_no_interval_and_say_so() -> None:
    found = named(score_latency([timed([9.0, 1.0, 2.0])], batch_size=4, plain_seconds=None))
    assert found["total"].low == found["total"].high == pytest.approx(1.5)
    assert "2 batches of 4 texts are too few" in found["total"].note
    assert "ratio" not in found


def test_last_batch_weighs_by_its_texts() -> None:
    seed = timed([1.0, 1.0, 1.0])
    short = SeedResult(0, seed.texts[:9])
    slow = replace(short.texts[8].generation, seconds={"retrieve": 0.0, "decode": 6.0})
    texts = (*short.texts[:8], replace(short.texts[8], generation=slow))
    found = named(score_latency([SeedResult(0, texts)], batch_size=4, plain_seconds=None))
    assert found["total"].mean == pytest.approx((4 * 1.0 + 6.0) / 5)


def test_contamination_above_the_limit_carries_a_warning() -> None:
    texts, share = score_contamination(Shares(0.42, 0.07, 95), limit=0.2)
    assert (texts.mean, share.mean, share.note) == (0.42, 0.07, "")
    *_, share = score_contamination(Shares(1.0, 0.5, 95), limit=0.2)
    assert share.note == "50% of the references is in the index and can be copied"
