"""What storing in int8 costs, against vectors encoded again."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from cog.decoding import storage
from cog.decoding.fit_codes import fit_codes
from cog.decoding.generator import CopyGenerator
from cog.decoding.scoring import WordScorer, make_scorer
from cog.errors import IndexingError
from cog.index.records import GatheredChunks
from cog.model.cache import PrefixCache
from cog.model.load import load_index_model
from cog.model.prefix_encoder import PrefixEncoder
from cog.params import load_params
from cog.paths import ProjectPaths

PREFIXES = ["The old mill stands", "On market days", "Bread is made from"]


def test_exact_vectors_are_those_that_were_stored(
    generator: CopyGenerator, village: ProjectPaths
) -> None:
    index = generator.index
    chunks = index.gather_chunks(np.arange(index.num_chunks))
    model = load_index_model(village.root / load_params(village.params).model)
    exact = storage._encode_exactly(index, chunks, model)
    stored = chunks.start_vectors * chunks.start_scales[:, None]
    error = np.abs(stored - exact.start_vectors).max(axis=1)
    assert (error <= chunks.start_scales * 0.51).all()  # half a step of int8


def test_cost_is_small_and_grows_with_coarser_storage(
    generator: CopyGenerator, village: ProjectPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load_index_model(village.root / load_params(village.params).model)
    fine = storage.measure_storage(generator.index, PREFIXES, generator.model, model)
    assert fine.num_prefixes == 3
    assert 0.0 < fine.total_variation_mean <= fine.total_variation_max < 0.02

    def coarse(chunks: GatheredChunks, **settings: Any) -> WordScorer:  # noqa: ANN401
        chunks.start_vectors[:] = chunks.start_vectors // 32 * 32  # three bits
        return make_scorer(chunks, **settings)

    monkeypatch.setattr(storage, "make_scorer", coarse)
    rough = storage.measure_storage(generator.index, PREFIXES, generator.model, model)
    assert rough.total_variation_mean > 3 * fine.total_variation_mean


def test_exact_storage_costs_nothing(
    generator: CopyGenerator, village: ProjectPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load_index_model(village.root / load_params(village.params).model)
    index = generator.index

    def exact(chunks: GatheredChunks, **settings: Any) -> WordScorer:  # noqa: ANN401
        return make_scorer(storage._encode_exactly(index, chunks, model), **settings)

    monkeypatch.setattr(storage, "make_scorer", exact)
    cost = storage.measure_storage(index, PREFIXES, generator.model, model)
    assert cost.total_variation_max < 1e-9


def test_prefixes_beyond_the_context_are_read_from_their_ends(
    generator: CopyGenerator, village: ProjectPaths
) -> None:
    model = load_index_model(village.root / load_params(village.params).model)
    prefixes = ["The old mill stands on the river. " * 60, "A"]
    cost = storage.measure_storage(generator.index, prefixes, generator.model, model)
    assert cost.num_prefixes == 2


def test_codes_are_fitted_to_chunks_longer_than_the_context(
    generator: CopyGenerator, village: ProjectPaths
) -> None:
    class ShortEncoder(PrefixEncoder):
        def append(self, cache: PrefixCache, token_ids: Sequence[Sequence[int]]) -> torch.Tensor:
            assert max(map(len, token_ids)) == 20
            return super().append(cache, token_ids)

    network = generator.model.prefix_encoder.network
    encoder = ShortEncoder(network, query_projection=None, begin_token_id=0)
    encoder.max_positions = 20
    index_model = load_index_model(village.root / load_params(village.params).model)
    model = replace(generator.model, prefix_encoder=encoder)
    codes = fit_codes(["The old mill stands on the river. " * 9], model, index_model)
    assert codes.start.num_bytes == codes.end.num_bytes
    with pytest.raises(IndexingError, match="need words of the corpus"):
        fit_codes(["x" * 500], model, index_model)
