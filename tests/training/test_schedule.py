import math

import pytest

from cog.training.schedule import Budget, rate_factor


def test_rate_rises_then_falls_as_a_cosine() -> None:
    factors = [rate_factor(p / 100, warmup=0.1, final=0.0) for p in range(101)]
    assert factors[:11] == pytest.approx([p / 10 for p in range(11)])
    assert factors[55] == pytest.approx(0.5)
    assert factors[100] == pytest.approx(0.0)
    assert all(a > b for a, b in zip(factors[10:], factors[11:], strict=False))
    quarter = 0.1 + 0.9 / 4
    assert rate_factor(quarter, warmup=0.1, final=0.0) == pytest.approx(
        0.5 * (1 + math.cos(math.pi / 4))
    )


@pytest.mark.parametrize("progress", [1.0, 7.5])
def test_rate_ends_at_its_final_share(progress: float) -> None:
    assert rate_factor(progress, warmup=0.0, final=0.2) == pytest.approx(0.2)


def test_rate_without_a_rise_begins_at_the_top() -> None:
    assert rate_factor(0.0, warmup=0.0, final=0.0) == 1.0
    assert rate_factor(1.0, warmup=1.0, final=0.0) == 1.0


def test_run_ends_at_the_limit_met_first() -> None:
    budget = Budget(max_steps=100, max_seconds=10.0)
    assert budget.progress(steps=50, seconds=2.0) == 0.5
    assert budget.progress(steps=50, seconds=10.0) == 1.0
    assert Budget(max_steps=None, max_seconds=4.0).progress(steps=999, seconds=1.0) == 0.25
    assert Budget(max_steps=4, max_seconds=None).progress(steps=3, seconds=1e9) == 0.75


@pytest.mark.parametrize(("steps", "seconds"), [(None, None), (0, None), (3, -1.0)])
def test_run_without_a_limit_is_refused(steps: int | None, seconds: float | None) -> None:
    with pytest.raises(ValueError, match="positive limit"):
        Budget(max_steps=steps, max_seconds=seconds)
