"""MAUVE: features of references and of texts go in, how alike the two kinds are comes out.

Pillutla et al. 2021: both kinds are quantised together, and MAUVE is the area under the curve of
divergences of the two histograms from their mixtures. One window a document, so that texts are
independent; a fixed number of clusters, so that only the number of texts moves the score; quantised
once, so that resamples draw from frozen counts.
"""

import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cog.errors import EvaluationError
from cog.evaluation.metrics.metric import HIGHER, Measured, Metric
from cog.evaluation.records import SeedResult
from cog.evaluation.session import Evaluation
from cog.evaluation.statistics import Values

MIN_TEXTS = 50  # below, systems are ranked by chance: refused
FEW_TEXTS = 1000  # below, the order of near systems is not to be trusted: flagged
CLUSTERS = 100
SCALE = 2.0
NUM_MIXTURES = 25
DRAWS = 100  # of which a standard error is told
SHARES = np.linspace(0.0, 1.0, 6)  # of their distance that is left to two histograms
EXPLAINED_VARIANCE = 0.9
LEFT_OUT = -1  # the cluster of a text that is not its document's first

Features = NDArray[np.float32]


def spread_clusters(rows: Values) -> Values:
    """Clusters of pairs of reference and text, quantisation after quantisation, to counts."""
    is_there = rows[..., None] == np.arange(CLUSTERS)
    counts: Values = is_there.reshape(len(rows), -1).astype(np.float64)
    return counts


def combine_mauve(sums: Values) -> Values:
    """MAUVE of counts, of references and texts in turn: the mean over quantisations.

    *Shape:* ``(num_samples, 2 * num_quantisations * CLUSTERS)`` to ``(num_samples,)``
    """
    counts = sums.reshape(len(sums), -1, 2, CLUSTERS)
    shares = counts / np.maximum(counts.sum(axis=-1, keepdims=True), 1e-12)
    p, q = shares[..., 0, :], shares[..., 1, :]  # (num_samples, num_quantisations, CLUSTERS)
    ends = np.zeros((*p.shape[:-1], 1))
    x, y = [ends + 1.0], [ends]  # from where only the second kind lies
    for weight in np.linspace(1e-6, 1 - 1e-6, NUM_MIXTURES):
        mixed = weight * p + (1 - weight) * q
        x.append(np.exp(-SCALE * _diverge(q, mixed))[..., None])
        y.append(np.exp(-SCALE * _diverge(p, mixed))[..., None])
    x.append(ends)
    y.append(ends + 1.0)
    curve_x, curve_y = np.concatenate(x, axis=-1), np.concatenate(y, axis=-1)
    area: Values = np.abs(np.trapezoid(curve_y, curve_x, axis=-1)).mean(axis=-1)
    return area


def find_error(sums: Values) -> float:
    """Standard error of MAUVE, from counts drawn of frozen histograms.

    Histograms of few texts differ more than what they are of, and those drawn from them still more.
    So both are first drawn towards each other until what is drawn has on average the MAUVE seen.
    Counts are by document; the error is the mean over quantisations.
    """
    random = np.random.default_rng(0)
    counts = sums.sum(axis=0).reshape(-1, 2, CLUSTERS)
    num = len(sums)
    errors = []
    for pair in counts / num:
        seen = float(combine_mauve(pair.reshape(1, -1))[0])
        middle = pair.mean(axis=0)
        best = (np.inf, 0.0)
        for share in SHARES:
            shrunk = middle + share * (pair - middle)
            drawn = random.multinomial(num, shrunk / shrunk.sum(axis=1, keepdims=True), (DRAWS, 2))
            scores = combine_mauve(drawn.reshape(DRAWS, -1).astype(np.float64))
            best = min(best, (abs(float(scores.mean()) - seen), float(scores.std(ddof=1))))
        errors.append(best[1])
    return float(np.mean(errors))


MAUVE = Metric(
    "quality/mauve",
    combine_mauve,
    HIGHER,
    top=1.0,
    is_of_size=True,
    spread=spread_clusters,
    find_error=find_error,
)
METRICS = (MAUVE,)


def find_reason_against(run: Evaluation) -> str:
    """Why there are no such scores; empty if there are."""
    num_texts = len({prompt.document_id for prompt in run.selection.prompts})
    if num_texts >= MIN_TEXTS or run.plan.allow_few_texts:
        return ""
    return (
        f"has too few texts for MAUVE: {num_texts}, one of each document, of the {MIN_TEXTS} that "
        f"it needs ({FEW_TEXTS} to rank near systems)"
    )


def measure(run: Evaluation, seeds: tuple[SeedResult, ...]) -> list[Measured]:
    """Encode and quantise the first text of every document."""
    protocol, prompts = run.plan.protocol, run.selection.prompts
    firsts = list({prompt.document_id: i for i, prompt in reversed([*enumerate(prompts)])}.values())
    firsts.sort()

    def encode(texts: Sequence[str]) -> Features:
        compared = run.compared(texts)
        return run.featuriser.encode_features(
            [compared[i] for i in firsts],
            layers=protocol.featuriser_layers,
            max_tokens=protocol.max_feature_tokens,
        )

    references = encode([prompt.reference for prompt in prompts])
    rows = np.full(
        (len(seeds), len(prompts), 2 * len(protocol.kmeans_seeds)), LEFT_OUT, dtype=float
    )
    for number, seed in enumerate(seeds):
        features = encode([text.generation.text for text in seed.texts])
        for place, kmeans_seed in enumerate(protocol.kmeans_seeds):
            clusters = quantise(references, features, seed=kmeans_seed)
            rows[number][firsts, 2 * place : 2 * place + 2] = clusters
    note = ""
    if len(firsts) < FEW_TEXTS:
        note = f"{len(firsts)} texts: below {FEW_TEXTS} the order of near systems is uncertain"
    return [Measured(MAUVE, rows, note=note, num_texts=len(firsts))]


def quantise(references: Features, features: Features, *, seed: int) -> NDArray[np.int64]:
    """Cluster both kinds together: unit length, 90 % of the variance, k-means.

    Gives the clusters of each pair; a feature that is not finite is an ``EvaluationError``.
    *Shape:* twice ``(num_texts, dim)`` to ``(num_texts, 2)``
    """
    from sklearn.cluster import KMeans
    from sklearn.decomposition import PCA
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.preprocessing import normalize

    joined = np.concatenate([references, features])
    if not np.isfinite(joined).all():
        raise EvaluationError(
            "features must be finite numbers",
            found=f"{int((~np.isfinite(joined)).any(axis=1).sum())} texts with others",
            run="compute the features anew in float32",
        )
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer texts than clusters
        warnings.simplefilter("ignore", RuntimeWarning)
        unit = normalize(joined.astype(np.float64))
        reduced = PCA(random_state=seed).fit(unit)
        share = np.cumsum(reduced.explained_variance_ratio_)
        dim = int(np.searchsorted(share, EXPLAINED_VARIANCE)) + 1
        points = reduced.transform(unit)[:, :dim]
        kmeans = KMeans(min(CLUSTERS, len(points)), n_init=2, max_iter=500, random_state=seed)
        labels: NDArray[np.int64] = kmeans.fit_predict(points)
    return labels.reshape(2, -1).T


def _diverge(p: Values, q: Values) -> Values:
    # Kullback-Leibler divergence of histograms; where p is 0 nothing is added
    terms = p * np.log(np.where(p > 0, p, 1.0) / np.where(p > 0, q, 1.0))
    total: Values = terms.sum(axis=-1)
    return total
