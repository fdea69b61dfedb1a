"""Likelihood of references under kNN-LM: the grid against a plain loop, and its neighbours."""

import math

import numpy as np
import pytest
import torch

from cog.baselines.knn_likelihood import (
    LikelihoodGrid,
    Neighbourhood,
    choose_scales,
    find_neighbourhood,
    perplexity_of,
)
from cog.baselines.knn_lm import KnnSettings
from cog.baselines.project import open_knn_lm
from cog.decoding.request import Request
from cog.model.load import CogModel
from cog.params import load_params
from cog.paths import ProjectPaths
from cog.records import Decoding

TOP_KS, SCALES, WEIGHTS = (1, 3, 8), (0.01, 0.2, 4.0), (0.1, 0.5, 0.9)
REQUEST = Request("The old mill stands", Decoding("nucleus", 0.95, 0, 16, 16, 0.0))
REFERENCE = " on the river, and the baker sells bread"


def make_found(seed: int) -> Neighbourhood:
    random = np.random.default_rng(seed)
    distances = np.sort(random.uniform(1, 60, (7, 8)).astype(np.float32), axis=1)
    distances[2, 5:] = np.inf
    distances[4] = np.inf
    return Neighbourhood(distances, random.random((7, 8)) < 0.3, random.uniform(0.01, 0.9, 7))


def plain_perplexity(texts: list[Neighbourhood], k: int, scale: float, weight: float) -> float:
    total, count = 0.0, 0
    for found in texts:
        for row in range(len(found.probabilities)):
            masses = [math.exp(-scale * float(d)) for d in found.distances[row, :k]]
            right = sum(m for m, r in zip(masses, found.is_right[row], strict=False) if r)
            alone = float(found.probabilities[row])
            near = right / sum(masses) if sum(masses) else alone  # the model's own distribution
            total += math.log(weight * near + (1 - weight) * alone)
            count += 1
    return math.exp(-total / count)


def test_the_grid_equals_a_plain_loop() -> None:
    texts = [make_found(0), make_found(1)]
    grid = LikelihoodGrid(TOP_KS, SCALES, WEIGHTS)
    for found in texts:
        grid.add(found)
    trials = list(grid.iter_trials(temperature=2.0))
    assert [trial.values.top_k for trial in trials] == list(TOP_KS)
    for trial in trials:
        every = {
            (scale, weight): plain_perplexity(texts, trial.values.top_k, scale, weight)
            for scale in SCALES
            for weight in WEIGHTS
        }
        best = min(every, key=lambda key: every[key])
        assert (trial.values.distance_scale / 2.0, trial.values.weight) == pytest.approx(best)
        assert trial.perplexity == pytest.approx(every[best], rel=1e-6)
        assert perplexity_of(texts, trial.values) == pytest.approx(trial.perplexity, rel=1e-6)
    alone = np.concatenate([each.probabilities for each in texts])
    assert grid.perplexity_alone == pytest.approx(float(np.exp(-np.log(alone).mean())))


def test_scales_lie_around_a_usual_distance() -> None:
    found = make_found(0)
    scales = choose_scales([found], usual=0.0123)
    nearest = found.distances[np.isfinite(found.distances[:, 0]), 0]
    assert 0.0123 in scales
    assert min(scales) < 1 / float(np.median(nearest)) < max(scales)
    same = Neighbourhood(np.zeros((2, 2), np.float32), found.is_right[:2, :2], np.ones(2))
    assert choose_scales([same], usual=0.0123) == (0.0123,)


@torch.inference_mode()
def test_neighbours_give_the_probabilities_that_writing_would(
    knn_village: ProjectPaths, tiny_cog_model: CogModel
) -> None:
    settings = load_params(knn_village.params).datastore
    generator = open_knn_lm(knn_village, "village", model=tiny_cog_model, settings=settings)
    found = find_neighbourhood(generator, REQUEST, REFERENCE, top_k=settings.top_k)
    values = KnnSettings(
        settings.top_k, settings.weight, settings.distance_scale, settings.temperature
    )
    encoder, splitter = tiny_cog_model.prefix_encoder, tiny_cog_model.splitter
    ids = generator.loop.encode_prefix(REQUEST)
    total, wanted = 0.0, splitter.encode(REFERENCE).tolist()
    for token in wanted:  # no cache, and the mixture as a step makes it
        state = encoder.append_last(encoder.new_cache(batch=1, capacity=8), [ids])
        mixed = generator.blend(state, generator.loop.weigh_tokens(state, [1.0]))[0].double()
        total += math.log(float(mixed[token] / mixed.sum()))
        ids = [*ids, token]
    assert perplexity_of([found], values) == pytest.approx(math.exp(-total / len(wanted)), rel=1e-4)
    assert len(found.probabilities) == len(wanted)
    assert torch.isfinite(torch.from_numpy(found.distances)).all()
