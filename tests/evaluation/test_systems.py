"""Evaluating baselines: same prompts and protocol, no scores of copies."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from cog.baselines.datastore import build_corpus_datastore
from cog.baselines.system import System, parse_system
from cog.baselines.systems import identify_system
from cog.errors import CheckpointError, EvaluationError, IndexNotBuiltError
from cog.evaluation.choose import Wish, choose_results
from cog.evaluation.runner import evaluate
from cog.evaluation.session import Plan
from cog.params import load_params
from cog.paths import ProjectPaths
from cog.progress import SilentProgress
from cog.records import Decoding
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
    assert transformer.system.index == ""
    names = {score.name for score in transformer.scores}
    assert "repetition/diversity" in names
    assert not any(name.startswith(("copies/", "likelihood/vocabulary")) for name in names)
    alone, own = (each.find_score("per-word") for each in (transformer, cog))
    vocabulary = cog.find_score("likelihood/vocabulary")
    assert alone is not None
    assert own is not None
    assert vocabulary is not None
    assert alone.mean == pytest.approx(vocabulary.mean, rel=1e-4)  # as if nothing could be copied
    assert own.mean != alone.mean
    texts = transformer.seeds[0].texts
    assert all(not s.document_id for t in texts for s in t.generation.segments)
    wish = Wish((("village", "cog"), ("village", "transformer")))
    assert [each.system.name for each in choose_results(own_village, wish)] == [
        "cog",
        "transformer",
    ]


def test_knn_lm_needs_a_datastore_and_then_is_evaluated(
    own_village: ProjectPaths, plan: Plan
) -> None:
    params = load_params(own_village.params)
    knn = replace(plan, system="knn-lm", groups=("repetition", "likelihood"))
    with pytest.raises(IndexNotBuiltError, match="cog paper datastore build village"):
        evaluate(own_village, params, knn, SilentProgress())
    manifest = build_corpus_datastore(
        own_village, "village", params=params, progress=SilentProgress(), device="cpu"
    )
    first = evaluate(own_village, params, knn, SilentProgress())
    assert first.system.num_index_words == manifest.num_entries
    other = replace(params, datastore=replace(params.datastore, weight=0.9))
    second = evaluate(own_village, other, knn, SilentProgress())
    assert second.system.digest != first.system.digest
    unused = replace(params, datastore=replace(params.datastore, batch_tokens=7, recall_at=3))
    third = evaluate(own_village, unused, knn, SilentProgress())
    assert third.system == first.system  # what was not used is no part of what was run
    found = first.find_score("per-word")
    assert found is not None
    assert 1.0 < found.mean < 1e9


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
    assert tuned.system.model != plain.system.model
    assert tuned.prompt_ids == plain.prompt_ids
    assert tuned.seeds[0].texts[0].generation.text != plain.seeds[0].texts[0].generation.text


def test_in_context_retrieval_is_evaluated_and_retrieves_what_is_asked(
    own_village: ProjectPaths, plan: Plan
) -> None:
    params = load_params(own_village.params)
    wish = replace(plan, system="in-context", groups=("repetition", "likelihood"))
    few = replace(wish, decoding=replace(plan.decoding, top_k_documents=2))
    none = replace(wish, decoding=replace(plan.decoding, top_k_documents=0))
    plain = replace(wish, system="transformer")
    found, alone, transformer = (
        evaluate(own_village, params, each, SilentProgress()) for each in (few, none, plain)
    )
    assert found.system.settings["top_k_documents"] == 2
    assert found.system.index
    assert found.seeds[0].texts[0].generation.prefix == alone.seeds[0].texts[0].generation.prefix
    scores = [each.find_score("per-word") for each in (found, alone, transformer)]
    means = [score.mean for score in scores if score is not None]
    assert means[1] == pytest.approx(means[2])  # nothing before the prompt
    assert means[0] != pytest.approx(means[1])


def test_a_model_that_was_hardly_trained_is_marked(own_village: ProjectPaths, plan: Plan) -> None:
    params = load_params(own_village.params)
    wish = replace(plan, system="transformer-ft", groups=("repetition",))
    folder = own_village.root / "models" / "tokens-village"
    make_tiny_model(folder, seed=1)
    for steps, is_smoke in (("75", True), ("2,000", False)):
        (folder / "README.md").write_text(f"| profile | tiny |\n| steps | {steps} |\n")
        result = evaluate(own_village, params, wish, SilentProgress())
        assert result.system.is_smoke == is_smoke
        assert ("smoke" in str(result.system)) == is_smoke


def test_what_a_system_does_not_use_is_no_part_of_what_was_run(
    own_village: ProjectPaths, plan: Plan
) -> None:
    params = load_params(own_village.params)
    greedy = replace(plan.decoding, method="greedy")

    def identify(name: str, decoding: Decoding) -> System:
        return identify_system(
            own_village, params, corpus_id="village", name=name, decoding=decoding, device="cpu"
        )

    other = replace(greedy, temperature=0.5, top_p=0.1, seed=3)
    assert identify("cog", greedy) == identify("cog", other)
    assert identify("transformer", greedy) == identify("transformer", other)
    biased = replace(greedy, phrase_bias=9.0)
    assert identify("transformer", biased) == identify("transformer", greedy)
    assert identify("cog", biased).digest != identify("cog", greedy).digest
    assert parse_system(identify("cog", biased).to_json()) == identify("cog", biased)
