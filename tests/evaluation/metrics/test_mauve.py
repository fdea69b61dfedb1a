"""MAUVE against mauve-text itself on the same features."""

import os
import warnings

import numpy as np
import pytest

from cog.errors import EvaluationError
from cog.evaluation.metrics.mauve import (
    FewTextsWarning,
    _hushed_clustering,
    choose_num_buckets,
    measure_mauve,
    score_halves,
)


def features(seed: int, num_texts: int, *, shift: float = 0.0) -> np.ndarray:
    random = np.random.default_rng(seed)
    centres = random.normal(size=(5, 12)) * 2
    rows = centres[random.integers(5, size=num_texts)] + random.normal(size=(num_texts, 12))
    return (rows + shift).astype(np.float32)


@pytest.fixture(scope="module")
def sides() -> tuple[np.ndarray, np.ndarray]:
    return features(0, 120), features(0, 120, shift=0.6)[::-1].copy()


def test_equals_mauve_text_seed_by_seed(sides: tuple[np.ndarray, np.ndarray]) -> None:
    import mauve

    with pytest.warns(FewTextsWarning, match="120 texts"):
        ours = measure_mauve(*sides, scaling_factor=2.0, seeds=(3, 7, 25))
    theirs = {}
    for seed in (3, 7, 25):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs[seed] = mauve.compute_mauve(
                *sides, mauve_scaling_factor=2.0, num_buckets="auto", seed=seed
            ).mauve
    assert ours.by_seed == pytest.approx(theirs, abs=1e-6)
    assert ours.mean == pytest.approx(np.mean(list(theirs.values())), abs=1e-6)
    assert ours.spread == pytest.approx(np.std(list(theirs.values()), ddof=1), abs=1e-6)
    assert 0.0 < ours.mean < 0.999
    assert ours.num_buckets == 12


def test_same_texts_score_above_others(sides: tuple[np.ndarray, np.ndarray]) -> None:
    with pytest.warns(FewTextsWarning):
        same = measure_mauve(sides[0], sides[0], scaling_factor=2.0, seeds=(0,))
    with pytest.warns(FewTextsWarning):
        other = measure_mauve(*sides, scaling_factor=2.0, seeds=(0,))
    assert same.mean == pytest.approx(1.0, abs=1e-9)
    assert same.spread == 0.0
    assert other.mean < same.mean


def test_few_texts_are_refused_unless_allowed() -> None:
    with pytest.raises(EvaluationError, match=r"at least 50 texts.*found: 49"):
        measure_mauve(features(0, 49), features(1, 80), scaling_factor=2.0, seeds=(0,))
    with pytest.warns(FewTextsWarning, match="49 texts"):
        score = measure_mauve(
            features(0, 49), features(1, 80), scaling_factor=2.0, seeds=(0,), allow_few=True
        )
    assert score.is_flagged


def test_thousand_texts_pass_without_a_warning() -> None:
    score = measure_mauve(
        features(0, 1000), features(1, 1000), scaling_factor=2.0, seeds=(0,), num_buckets=10
    )
    assert not score.is_flagged
    assert (score.num_texts, score.num_buckets) == (1000, 10)


def test_numbers_that_are_not_finite_are_refused(sides: tuple[np.ndarray, np.ndarray]) -> None:
    broken = sides[1].copy()
    broken[3, 2] = np.nan
    with (
        pytest.warns(FewTextsWarning),
        pytest.raises(EvaluationError, match="1 generation texts"),
    ):
        measure_mauve(sides[0], broken, scaling_factor=2.0, seeds=(0,))


def test_halves_tell_the_standard_error() -> None:
    # the spread over halves of one sample against the spread over fresh samples of that size
    def sample(seed: int) -> tuple[np.ndarray, np.ndarray]:
        random = np.random.default_rng(seed)
        first = random.normal(size=(100, 6)).astype(np.float32)
        second = (random.normal(size=(100, 6)) + [0.8, 0, 0, 0, 0, 0]).astype(np.float32)
        return first, second

    def score(seed: int) -> float:
        with pytest.warns(FewTextsWarning):
            made = measure_mauve(*sample(seed), scaling_factor=2.0, seeds=(0,), num_buckets=5)
        return made.mean

    fresh = np.std([score(seed) for seed in range(12)], ddof=1)
    halves = np.mean(
        [
            score_halves(
                *sample(seed), scaling_factor=2.0, num_halves=12, seed=seed, num_buckets=5
            ).std(ddof=1)
            for seed in range(3)
        ]
    )
    assert 0.4 < halves / fresh < 2.5


def test_halves_are_paired_between_systems(sides: tuple[np.ndarray, np.ndarray]) -> None:
    first = score_halves(*sides, scaling_factor=2.0, num_halves=3, seed=1)
    again = score_halves(*sides, scaling_factor=2.0, num_halves=3, seed=1)
    assert first.tolist() == again.tolist()
    assert len(set(first.tolist())) == 3
    with pytest.raises(ValueError, match="every reference"):
        score_halves(sides[0], sides[1][:-1], scaling_factor=2.0, num_halves=3, seed=1)


@pytest.mark.parametrize(("num_texts", "wanted"), [(10, 2), (55, 6), (200, 20), (1000, 100)])
def test_buckets_are_a_tenth_as_in_mauve_text(num_texts: int, wanted: int) -> None:
    assert choose_num_buckets(num_texts) == wanted


def test_nothing_is_written_but_what_others_write(
    sides: tuple[np.ndarray, np.ndarray], capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.warns(FewTextsWarning):
        measure_mauve(*sides, scaling_factor=2.0, seeds=(0,))
    assert capfd.readouterr().err == ""
    with _hushed_clustering():
        os.write(2, b"WARNING clustering 3 points\nout of memory\n")
    os.write(2, b"after\n")
    assert capfd.readouterr().err == "out of memory\nafter\n"
