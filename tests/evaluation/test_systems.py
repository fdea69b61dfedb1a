"""Evaluating baselines: same prompts and protocol, no scores of copies."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from cog.baselines.project import build_corpus_datastore
from cog.errors import CheckpointError, EvaluationError, IndexNotBuiltError
from cog.evaluation.choose import Wish, choose_results
from cog.evaluation.runner import evaluate
from cog.evaluation.session import Plan
from cog.params import load_params
from cog.paths import ProjectPaths
from cog.progress import SilentProgress
from tests.model_fixtures import TEXTS, make_tiny_model


@pytest.fixture
def own_village(village: ProjectPaths, tmp_path: Path) -> ProjectPaths:
    shutil.copytree(village.root, tmp_path / "project")
    return ProjectPaths(tmp_path / "project")


def test_baselines_are_evaluated_on_the_same_prompts(own_village: ProjectPaths, plan: Plan) -> None:
    params = load_params(own_village.params)
    cog = evaluate(own_village, params, plan, SilentProgress())
    transformer = evaluate(
        own_village, params, replace(plan, system="transformer"), SilentProgress()
    )
    assert transformer.protocol == cog.protocol
    assert transformer.prompt_ids == cog.prompt_ids
    assert transformer.index == ""
    names = {metric.name for metric in transformer.metrics}
    assert "repetition/diversity" in names
    assert not any(name.startswith(("copies/", "perplexity/reference")) for name in names)
    texts = transformer.seeds[0].texts
    assert all(not s.document_id for t in texts for s in t.generation.segments)
    wish = Wish(("village",), ("cog", "transformer"), None, None)
    assert [each.system for each in choose_results(own_village, wish)] == ["cog", "transformer"]


def test_knn_lm_needs_a_datastore_and_then_is_evaluated(
    own_village: ProjectPaths, plan: Plan
) -> None:
    params = load_params(own_village.params)
    knn = replace(plan, system="knn-lm", groups=("repetition",))
    with pytest.raises(IndexNotBuiltError, match="cog datastore build village"):
        evaluate(own_village, params, knn, SilentProgress())
    manifest = build_corpus_datastore(
        own_village, "village", params=params, progress=SilentProgress(), device="cpu"
    )
    first = evaluate(own_village, params, knn, SilentProgress())
    assert first.num_index_words == manifest.num_entries
    other = replace(params, datastore=replace(params.datastore, weight=0.9))
    second = evaluate(own_village, other, knn, SilentProgress())
    assert second.index != first.index


def test_a_system_that_copies_nothing_has_no_scores_of_copies(
    own_village: ProjectPaths, plan: Plan
) -> None:
    params = load_params(own_village.params)
    wish = replace(plan, system="transformer", groups=("copies",))
    with pytest.raises(EvaluationError, match="copies nothing"):
        evaluate(own_village, params, wish, SilentProgress())


def test_the_tuned_transformer_needs_a_model_of_its_corpus_and_tokenizer(
    own_village: ProjectPaths, plan: Plan
) -> None:
    params = load_params(own_village.params)
    wish = replace(plan, system="transformer-ft", groups=("repetition",))
    with pytest.raises(CheckpointError, match="--corpus village --out models/tokens-village"):
        evaluate(own_village, params, wish, SilentProgress())
    folder = own_village.root / "models" / "tokens-village"
    make_tiny_model(folder, seed=1, texts=[*TEXTS, "Quite other words occur here."])
    with pytest.raises(CheckpointError, match="must have the tokenizer of models/tiny"):
        evaluate(own_village, params, wish, SilentProgress())
    shutil.rmtree(folder)
    make_tiny_model(folder, seed=1)
    tuned = evaluate(own_village, params, wish, SilentProgress())
    plain = evaluate(own_village, params, replace(wish, system="transformer"), SilentProgress())
    assert tuned.model != plain.model
    assert tuned.prompt_ids == plain.prompt_ids
    assert tuned.seeds[0].texts[0].generation.text != plain.seeds[0].texts[0].generation.text
