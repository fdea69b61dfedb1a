"""MAUVE: features of references and of generations go in, scores come out.

The only place that imports ``mauve-text``, which is under the GPLv3.
"""

import os
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cog.errors import EvaluationError

MIN_TEXTS = 50  # below, systems are ranked by chance: refused
FEW_TEXTS = 1000  # below, the order of near systems is not to be trusted: flagged
STDERR = 2  # file descriptor, since FAISS writes past Python
CLUSTERING_WARNING = b"WARNING clustering"

Features = NDArray[np.float32]


class FewTextsWarning(UserWarning):
    """MAUVE was computed on too few texts to rank systems by it."""


@dataclass(frozen=True, slots=True)
class MauveScore:
    """MAUVE of one system, between 0 and 1.

    :param mean: Mean over the k-means seeds.
    :param spread: Standard deviation over the k-means seeds; 0 for one.
    :param by_seed: Score by k-means seed.
    :param num_texts: Number of texts on the smaller side.
    :param num_buckets: Number of clusters.
    """

    mean: float
    spread: float
    by_seed: dict[int, float]
    num_texts: int
    num_buckets: int

    @property
    def is_flagged(self) -> bool:
        """Whether there were too few texts to trust the order of near systems.

        :returns: True below 1,000 texts.
        """
        return self.num_texts < FEW_TEXTS


def check_num_texts(num_texts: int, *, allow_few: bool) -> None:
    """Refuse MAUVE on so few texts that it ranks by chance, and warn where it may mislead.

    :param num_texts: Number of texts on the smaller side.
    :param allow_few: Compute it nevertheless.
    :raises EvaluationError: If there are fewer than 50 and that is not allowed.
    """
    if num_texts < MIN_TEXTS and not allow_few:
        raise EvaluationError(
            f"MAUVE needs at least {MIN_TEXTS} texts ({FEW_TEXTS} to rank near systems)",
            found=f"{num_texts}",
            run="raise --prompts, or pass --allow-few-texts to see a number that means little",
        )
    if num_texts < FEW_TEXTS:
        warnings.warn(
            f"MAUVE on {num_texts} texts: below {FEW_TEXTS} the order of near systems is uncertain",
            FewTextsWarning,
            stacklevel=3,
        )


def choose_num_buckets(num_texts: int) -> int:
    """The number of clusters that mauve-text takes by default: a tenth of the texts.

    :param num_texts: Number of texts on the smaller side.
    :returns: At least 2.
    """
    return max(2, round(num_texts / 10))


def measure_mauve(
    reference_features: Features,
    generation_features: Features,
    *,
    scaling_factor: float,
    seeds: Sequence[int],
    num_buckets: int | None = None,
    allow_few: bool = False,
) -> MauveScore:
    """MAUVE (Pillutla et al. 2021) under several k-means seeds.

    :param reference_features: Features of the references. *Shape:* ``(num_references, dim)``
    :param generation_features: Features of the generations. *Shape:* ``(num_generations, dim)``
    :param scaling_factor: The paper's c; 2.0 in CoG.
    :param seeds: K-means seeds, at least one.
    :param num_buckets: Number of clusters; None for a tenth of the texts.
    :param allow_few: Compute it on fewer than 50 texts too.
    :returns: The score.
    :raises EvaluationError: If there are too few texts, or a feature is not finite.
    """
    if not seeds:
        raise ValueError("MAUVE needs at least one k-means seed")
    num_texts = min(len(reference_features), len(generation_features))
    check_num_texts(num_texts, allow_few=allow_few)
    for name, features in (("reference", reference_features), ("generation", generation_features)):
        if not np.isfinite(features).all():
            raise EvaluationError(
                "features must be finite numbers",
                found=f"{int((~np.isfinite(features)).any(axis=1).sum())} {name} texts with others",
                run="compute the features anew in float32",
            )
    buckets = num_buckets or choose_num_buckets(num_texts)
    by_seed = {
        seed: _score(
            reference_features,
            generation_features,
            num_buckets=buckets,
            scaling_factor=scaling_factor,
            seed=seed,
        )
        for seed in seeds
    }
    scores = np.array(list(by_seed.values()))
    spread = float(scores.std(ddof=1)) if len(scores) > 1 else 0.0
    return MauveScore(float(scores.mean()), spread, by_seed, num_texts, buckets)


def score_halves(
    reference_features: Features,
    generation_features: Features,
    *,
    scaling_factor: float,
    num_halves: int,
    seed: int,
    num_buckets: int | None = None,
) -> NDArray[np.float64]:
    """MAUVE of random halves of the prompts, from which its standard error is told.

    MAUVE has no value per text, and a bootstrap would put the same text on one side twice. The
    standard deviation over halves drawn without replacement estimates the standard error of the
    score of the whole (the delete-half jackknife). The halves depend only on the number of prompts
    and the seed, so those of two systems on the same prompts are paired.

    :param reference_features: Features of the references, by prompt. *Shape:* ``(num_texts, dim)``
    :param generation_features: Features of the generations, in the same order. *Shape:*
        ``(num_texts, dim)``
    :param scaling_factor: The paper's c.
    :param num_halves: Number of halves.
    :param seed: Seed of the halves; also of k-means.
    :param num_buckets: Number of clusters; None for a tenth of a half.
    :returns: Scores. *Shape:* ``(num_halves,)``
    :raises ValueError: If the sides are not paired.
    """
    num_texts = len(reference_features)
    if len(generation_features) != num_texts:
        raise ValueError("halves need a generation for every reference, in the same order")
    random = np.random.default_rng(seed)
    size = max(1, num_texts // 2)
    buckets = num_buckets or choose_num_buckets(size)
    chosen = [random.permutation(num_texts)[:size] for _ in range(num_halves)]
    scores = [
        _score(
            reference_features[half],
            generation_features[half],
            num_buckets=buckets,
            scaling_factor=scaling_factor,
            seed=seed,
        )
        for half in chosen
    ]
    return np.array(scores, dtype=np.float64)


def _score(
    reference_features: Features,
    generation_features: Features,
    *,
    num_buckets: int,
    scaling_factor: float,
    seed: int,
) -> float:
    import mauve

    with warnings.catch_warnings(), _hushed_clustering():
        warnings.simplefilter("ignore")  # of PCA on few texts, which are flagged above
        result = mauve.compute_mauve(
            p_features=reference_features,
            q_features=generation_features,
            num_buckets=num_buckets,
            mauve_scaling_factor=scaling_factor,
            seed=seed,
            verbose=False,
        )
    return float(result.mauve)


@contextmanager
def _hushed_clustering() -> Iterator[None]:
    # FAISS writes a line for each clustering of fewer than 39 points a cluster, which MAUVE's tenth
    # of the texts always is; whatever else is written meanwhile is passed on
    sys.stderr.flush()
    kept = os.dup(STDERR)
    try:
        with tempfile.TemporaryFile() as written:
            os.dup2(written.fileno(), STDERR)
            try:
                yield
            finally:
                sys.stderr.flush()
                os.dup2(kept, STDERR)
                written.seek(0)
                for line in written:
                    if not line.startswith(CLUSTERING_WARNING):
                        os.write(STDERR, line)
    finally:
        os.close(kept)
