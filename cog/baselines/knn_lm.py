"""kNN-LM: a model and a datastore go in, texts of the interpolated distribution come out."""

import time

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cog.baselines.manifest import DatastoreManifest
from cog.baselines.neighbours import UnionSearcher
from cog.baselines.transformer import TransformerGenerator
from cog.errors import GenerationError
from cog.model.load import CogModel
from cog.params import DatastoreParams

KNN_SETTINGS = ("top_k", "weight", "distance_scale", "temperature")  # k, lambda, alpha, and tau


def check_settings(settings: DatastoreParams, *, num_entries: int, corpus_id: str) -> None:
    """Refuse settings that cannot be used with a datastore of so many entries."""
    factor = settings.distance_scale / settings.temperature
    if not 1e-30 <= factor <= 1e30:
        raise GenerationError(
            "datastore.distance_scale over datastore.temperature must lie from 1e-30 to 1e30",
            found=str(factor),
            run="change params.yaml",
        )
    if num_entries < settings.top_k:
        raise GenerationError(
            f"the datastore of {corpus_id} must hold the {settings.top_k} neighbours of a step",
            found=f"{num_entries} entries",
            run="lower datastore.top_k in params.yaml",
            about=corpus_id,
        )


def check_distances(distances: NDArray[np.float32]) -> None:
    """Refuse distances that are no numbers; infinite ones are of no neighbour."""
    if np.isnan(distances).any():
        raise GenerationError(
            "distances to neighbours must be numbers",
            found="NaN among the keys",
            run="cog paper datastore build ID",
        )


def weigh_neighbours(
    distances: NDArray[np.float32], *, settings: DatastoreParams
) -> NDArray[np.float32]:
    """Probability of each neighbour: ``softmax(-alpha · distance / temperature)``.

    Squared distances, of *Shape:* ``(batch, top_k)``, go nearest first, and are infinite for no
    neighbour. All probabilities are 0 where there is none, which leaves the model's own
    distribution; those of a token are their sums.
    """
    check_distances(distances)
    nearest = distances.min(axis=1, keepdims=True)
    has_any = np.isfinite(nearest)
    beyond = distances - np.where(has_any, nearest, 0.0)
    weights = np.exp(-np.float32(settings.distance_scale / settings.temperature) * beyond)
    found: NDArray[np.float32] = weights / np.where(has_any, weights.sum(1, keepdims=True), 1.0)
    return found


def interpolate(
    weights: Tensor, tokens: Tensor, neighbour_weights: Tensor, *, share: float
) -> Tensor:
    """Mix both distributions: ``(1 - lambda) p_LM + lambda p_kNN`` (Khandelwal et al. 2020, eq. 3).

    Both are probabilities, so that a nucleus of the result is one of probabilities. The paper's
    own code filtered them as if they were logits.

    :param weights: Of the language model, unnormalised. *Shape:* ``(batch, vocab_size)``
    :param tokens: Next tokens of the neighbours. *Shape:* ``(batch, top_k)``, int64
    :param neighbour_weights: Probabilities of the neighbours. *Shape:* ``(batch, top_k)``
    :param share: Lambda.
    :returns: As ``weights``, and of their totals.
    """
    totals = weights.sum(dim=1, keepdim=True)
    has_any = neighbour_weights.any(dim=1, keepdim=True)  # without, the model's own are left
    mixed = weights * torch.where(has_any, 1.0 - share, 1.0)
    return mixed.scatter_add_(1, tokens, neighbour_weights * (share * totals))


class KnnGenerator(TransformerGenerator):
    """The kNN-LM baseline (CoG, section 4.1); every step searches the datastore.

    Tokens are its next tokens, *shape* ``(num_entries,)``. Settings that cannot be used with it are
    a ``GenerationError``.
    """

    def __init__(
        self,
        model: CogModel,
        manifest: DatastoreManifest,
        *,
        searcher: UnionSearcher,
        tokens: NDArray[np.int32],
        settings: DatastoreParams,
    ) -> None:
        check_settings(settings, num_entries=manifest.num_entries, corpus_id=manifest.corpus)
        super().__init__(model, corpus_id=manifest.corpus, index=manifest.digest)
        self._searcher = searcher
        self._tokens = tokens
        self._settings = settings

    def blend(self, states: Tensor, weights: Tensor) -> Tensor:
        """Mix the neighbours of each state in."""
        if self._settings.weight == 0.0:
            return weights
        began = time.perf_counter()
        distances, tokens = self.find_neighbours(states, top_k=self._settings.top_k)
        found = weigh_neighbours(distances, settings=self._settings)
        mixed = interpolate(
            weights,
            torch.from_numpy(tokens.astype(np.int64)).to(weights.device),
            torch.from_numpy(found).to(weights.device),
            share=self._settings.weight,
        )
        if not bool(torch.isfinite(mixed.sum())):
            raise GenerationError(
                "the interpolated distribution must be finite",
                found="NaN or infinity in that of the model",
                run="cog generate --corpus ID, to see whether the model itself is sound",
            )
        self.searched_seconds += time.perf_counter() - began
        return mixed

    def find_neighbours(
        self, states: Tensor, *, top_k: int
    ) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
        """Find the entries nearest to states: squared distances, and next tokens.

        Each of *Shape:* ``(batch, top_k)``; nearest first, and infinitely far for none.
        """
        queries = states.float().cpu().numpy()
        if not np.isfinite(queries).all():
            raise GenerationError(
                "a hidden state must be finite to be searched with",
                found="NaN or infinity",
                run="cog generate --corpus ID, to see whether the model itself is sound",
            )
        rows, distances = self._searcher.search(queries, top_k=top_k)
        check_distances(distances)
        return distances, self._tokens[rows]  # a row of -1 has no weight: any token does
