"""How well kNN-LM predicts text: references go in, their likelihood under many settings comes out.

Khandelwal et al. 2020 tune so, on held-out text. The datastore is searched once per token; all
numbers of neighbours, distance scales and weights are told from the same neighbours.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import exp, log
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cog.baselines.knn_lm import KnnGenerator, KnnSettings
from cog.decoding.request import Request, encode_prefix

WEIGHTS = tuple(round(0.01 * number, 2) for number in range(1, 96))
NUMBERS_OF_NEIGHBOURS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
SCALE_STEPS = range(-4, 9)  # powers of two, over the median distance of the nearest entry
LEAST_PROBABILITY = 1e-30  # of a token that has none in float32


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """The neighbours of some positions of a text.

    :param distances: Squared distances, nearest first, infinite for none. *Shape:*
        ``(num_tokens, top_k)``
    :param is_right: Whether a neighbour's next token is that of the text. *Shape:*
        ``(num_tokens, top_k)``
    :param probabilities: Of the text's tokens under the model alone. *Shape:* ``(num_tokens,)``
    """

    distances: NDArray[np.float32]
    is_right: NDArray[np.bool_]
    probabilities: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class KnnTrial:
    """Settings and how well they predict.

    :param values: The settings.
    :param perplexity: Per token of the references.
    """

    values: KnnSettings
    perplexity: float

    def to_json(self) -> dict[str, Any]:
        """The trial as plain values."""
        values = self.values
        return {
            "top_k": values.top_k,
            "weight": values.weight,
            "distance_scale": values.distance_scale,
            "temperature": values.temperature,
            "perplexity": self.perplexity,
        }


@torch.inference_mode()
def find_neighbourhood(
    generator: KnnGenerator, request: Request, reference: str, *, top_k: int
) -> Neighbourhood:
    """Find the neighbours of every token of a reference, given what stands before it."""
    model = generator.model
    encoder, prefix = model.prefix_encoder, encode_prefix(request, model)
    token_ids: NDArray[np.int32] = model.splitter.encode(reference)
    read = [prefix + token_ids[:-1].tolist()]
    cache = encoder.new_cache(batch=1, capacity=len(read[0]))
    states = encoder.append(cache, read)[len(prefix) - 1 :]  # one per token of the reference
    weights = generator.loop.weigh_tokens(states, [1.0] * len(states)).double()
    wanted = torch.from_numpy(token_ids.astype(np.int64)).to(weights.device)
    chosen = weights.gather(1, wanted[:, None])[:, 0] / weights.sum(dim=1)
    distances, tokens = generator.find_neighbours(states, top_k=top_k)
    return Neighbourhood(distances, tokens == token_ids[:, None], chosen.cpu().numpy())


class LikelihoodGrid:
    """Log-likelihoods of all that was added, under every combination of settings.

    :param top_ks: Numbers of neighbours, rising.
    :param scales: What a squared distance is multiplied with.
    :param weights: Shares of the neighbours.
    """

    def __init__(
        self, top_ks: Sequence[int], scales: Sequence[float], weights: Sequence[float]
    ) -> None:
        self.top_ks, self.scales, self.weights = tuple(top_ks), tuple(scales), tuple(weights)
        self._sums = np.zeros((len(self.scales), len(self.top_ks), len(self.weights)))
        self._alone = 0.0
        self._num_tokens = 0

    def add(self, found: Neighbourhood) -> None:
        """Count a text in."""
        alone = np.maximum(found.probabilities, LEAST_PROBABILITY)
        self._alone += float(np.log(alone).sum())
        self._num_tokens += len(alone)
        weights = np.array(self.weights)
        for number, scale in enumerate(self.scales):
            near = measure_right_mass(found, scale=scale, top_ks=self.top_ks)
            for k in range(len(self.top_ks)):
                mixed = np.outer(near[:, k], weights) + np.outer(alone, 1.0 - weights)
                mixed = np.maximum(mixed, LEAST_PROBABILITY)
                self._sums[number, k] += np.log(mixed).sum(axis=0)

    @property
    def perplexity_alone(self) -> float:
        """Perplexity under the model without neighbours."""
        return exp(-self._alone / self._num_tokens)

    def iter_trials(self, *, temperature: float) -> Iterator[KnnTrial]:
        """The best settings for each number of neighbours.

        :param temperature: What distances are divided by; only its quotient with the scale counts.
        :yields: One trial per number of neighbours.
        """
        for k, top_k in enumerate(self.top_ks):
            sums = self._sums[:, k]
            scale, weight = np.unravel_index(int(sums.argmax()), sums.shape)
            values = KnnSettings(
                top_k, self.weights[weight], self.scales[scale] * temperature, temperature
            )
            yield KnnTrial(values, exp(-float(sums[scale, weight]) / self._num_tokens))


def measure_right_mass(
    found: Neighbourhood, *, scale: float, top_ks: Sequence[int]
) -> NDArray[np.float64]:
    """Probability of each token among its neighbours, for several numbers of neighbours.

    :param found: The neighbours.
    :param scale: What a squared distance is multiplied with.
    :param top_ks: Numbers of neighbours.
    :returns: *Shape:* ``(num_tokens, len(top_ks))``; the model's own probability where there is no
        neighbour, since the mixture is that of the model there.
    """
    nearest = found.distances[:, :1].astype(np.float64)
    has_any = np.isfinite(nearest)
    shifted = found.distances - np.where(has_any, nearest, 0.0)
    masses = np.exp(-scale * shifted)
    last = np.array(top_ks) - 1
    total = masses.cumsum(axis=1)[:, last]
    right = (masses * found.is_right).cumsum(axis=1)[:, last]
    alone = np.broadcast_to(found.probabilities[:, None], right.shape).copy()
    mass: NDArray[np.float64] = np.divide(
        right, total, out=alone, where=np.broadcast_to(has_any, right.shape)
    )
    return mass


def choose_scales(found: Sequence[Neighbourhood], *, usual: float) -> tuple[float, ...]:
    """Choose distance scales to try: steps of two around one over a usual nearest distance."""
    nearest = np.concatenate([each.distances[:, 0] for each in found])
    nearest = nearest[np.isfinite(nearest)]
    middle = float(np.median(nearest)) if len(nearest) else 0.0
    if middle <= 0.0:
        return (usual,)
    return tuple(sorted({usual, *(2.0**step / middle for step in SCALE_STEPS)}))


def perplexity_of(found: Sequence[Neighbourhood], settings: KnnSettings) -> float:
    """Perplexity of texts under one setting.

    :param found: Neighbours of their tokens, as many as the setting takes or more.
    :param settings: The setting.
    :returns: Per token.
    """
    total, num_tokens = 0.0, 0
    scale = settings.distance_scale / settings.temperature
    for each in found:
        near = measure_right_mass(each, scale=scale, top_ks=[settings.top_k])[:, 0]
        mixed = settings.weight * near + (1.0 - settings.weight) * each.probabilities
        total += sum(log(max(value, LEAST_PROBABILITY)) for value in mixed.tolist())
        num_tokens += len(mixed)
    return exp(-total / num_tokens)
