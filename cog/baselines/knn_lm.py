"""kNN-LM: a model and a datastore go in, texts of the interpolated distribution come out."""

import time
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cog.baselines.datastore import load_keys, load_tokens
from cog.baselines.manifest import DatastoreManifest, join_manifests, load_manifests, mismatch
from cog.baselines.neighbours import (
    FLAT,
    SEARCHER_FILE,
    NeighbourSearcher,
    UnionSearcher,
    open_searcher,
)
from cog.baselines.transformer import TransformerGenerator
from cog.errors import GenerationError
from cog.model.load import CogModel
from cog.params import DatastoreParams
from cog.paths import ProjectPaths

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


def weigh_neighbours(
    distances: NDArray[np.float32], *, settings: DatastoreParams
) -> NDArray[np.float32]:
    """Probability of each neighbour: ``softmax(-alpha · distance / temperature)``.

    Squared distances, of *Shape:* ``(batch, top_k)``, go nearest first, and are infinite for no
    neighbour. All probabilities are 0 where there is none, which leaves the model's own
    distribution; those of a token are their sums.
    """
    if np.isnan(distances).any():
        raise GenerationError(
            "distances to neighbours must be numbers",
            found="NaN among the keys",
            run="cog paper datastore build ID",
        )
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
    own code filtered them as if they were logits. Weights are unnormalised, *shape* ``(batch,
    vocab_size)``, and so is what comes out, with the same totals; neighbours are ``(batch,
    top_k)``.
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
        return distances, self._tokens[rows]  # a row of -1 has no weight: any token does


def describe_search(
    settings: DatastoreParams, manifests: Sequence[DatastoreManifest]
) -> dict[str, float]:
    """The settings of section ``datastore`` that change what is found in built datastores.

    Where search is exact, its reach does not count.
    """
    if not settings.weight:
        names = ["weight"]
    else:
        is_exact = all(each.search["kind"] == FLAT for each in manifests)
        names = [*KNN_SETTINGS, *([] if is_exact else ["num_probes", "rerank_factor"])]
    return {f"knn_{name}": getattr(settings, name) for name in names}


def open_knn_lm(
    paths: ProjectPaths, corpus_id: str, *, model: CogModel, settings: DatastoreParams
) -> KnnGenerator:
    """Open the datastore of a corpus, or those of a union as one, for writing texts."""
    manifests = load_manifests(paths, corpus_id, model=model.fingerprint)
    parts = [_open_part(paths, manifest, settings) for manifest in manifests]
    tokens = [
        load_tokens(paths.corpus(each.corpus).datastore, num_entries=each.num_entries)
        for each in manifests
    ]
    return KnnGenerator(
        model,
        join_manifests(manifests),
        searcher=UnionSearcher(parts),
        tokens=np.concatenate(tokens),
        settings=settings,
    )


def _open_part(
    paths: ProjectPaths, manifest: DatastoreManifest, settings: DatastoreParams
) -> NeighbourSearcher:
    folder = paths.corpus(manifest.corpus).datastore
    keys = load_keys(folder, num_entries=manifest.num_entries, dim=manifest.dim)
    try:
        return open_searcher(folder, keys, kind=str(manifest.search["kind"]), settings=settings)
    except RuntimeError as error:  # what FAISS raises for a file that is missing or damaged
        raise mismatch(
            manifest.corpus, f"one with a readable {SEARCHER_FILE}", str(error).partition("\n")[0]
        ) from error
