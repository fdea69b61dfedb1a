"""MAUVE: the area is that of mauve-text, and clusters tell alike texts from others."""

import numpy as np
import pytest

from cog.errors import EvaluationError
from cog.evaluation.metrics.mauve import CLUSTERS, MAUVE, SCALE, combine_mauve, quantise

NAMES = [str(i) for i in range(500)]


def features(seed: int, *, shift: float = 0.0, num_texts: int = 200) -> np.ndarray:
    random = np.random.default_rng(seed)
    return (random.normal(size=(num_texts, 24)) + shift).astype(np.float32)


def score(first: np.ndarray, second: np.ndarray, *, seed: int = 0) -> float:
    rows = quantise(first, second, seed=seed)
    sums = MAUVE.sum_rows(rows.tolist(), NAMES[: len(rows)])
    return float(MAUVE.combine(sums.sum(axis=0)[None])[0])


def test_alike_texts_score_higher_than_others() -> None:
    alike, near, far = (score(features(0), features(1, shift=each)) for each in (0.0, 0.3, 3.0))
    assert 1.0 >= alike > near > far >= 0.0


def test_area_of_histograms_is_that_of_mauve_text() -> None:
    pytest.importorskip("mauve")
    from mauve.compute_mauve import get_divergence_curve_for_multinomials as curve_of
    from sklearn.metrics import auc

    random = np.random.default_rng(1)
    for concentration in (0.05, 0.5, 5.0):
        p, q = random.dirichlet(np.full(CLUSTERS, concentration), size=2)
        x, y = curve_of(p, q, np.linspace(1e-6, 1 - 1e-6, 25), SCALE).T
        order, other = np.argsort(x), np.argsort(y)
        wanted = 0.5 * (auc(x[order], y[order]) + auc(y[other], x[other]))
        found = combine_mauve(np.concatenate([p, q])[None] * 300)
        assert found[0] == pytest.approx(wanted, rel=1e-6)


def test_quantisations_are_averaged_and_texts_that_were_left_out_do_not_count() -> None:
    first, second = (quantise(features(0), features(1), seed=seed) for seed in (0, 1))
    both = MAUVE.sum_rows(np.concatenate([first, second], axis=1).tolist(), NAMES[:200])
    wanted = np.mean([score(features(0), features(1), seed=seed) for seed in (0, 1)])
    assert MAUVE.combine(both.sum(axis=0)[None])[0] == pytest.approx(wanted)
    left_out = np.full((100, 2), -1)
    padded = MAUVE.sum_rows(np.concatenate([first, left_out]).tolist(), NAMES[:300])
    alone = MAUVE.sum_rows(first.tolist(), NAMES[:200])
    assert MAUVE.combine(padded.sum(axis=0)[None]) == MAUVE.combine(alone.sum(axis=0)[None])


def test_the_same_seed_gives_the_same_clusters() -> None:
    twice = [quantise(features(0), features(1), seed=3) for _ in range(2)]
    assert (twice[0] == twice[1]).all()


def test_features_that_are_no_numbers_are_refused() -> None:
    broken = features(1)
    broken[3, 2] = np.nan
    with pytest.raises(EvaluationError, match="finite numbers; found: 1 texts"):
        quantise(features(0), broken, seed=0)


def test_texts_that_are_all_the_same_are_no_trouble() -> None:
    same = np.ones((60, 8), dtype=np.float32)
    assert score(same, same) == pytest.approx(1.0)
