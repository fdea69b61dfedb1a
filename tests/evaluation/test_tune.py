"""Tuning: the split of prompts, the objective, the search, and what is kept."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cog.corpus.documents import load_prompts
from cog.decoding.tuning import (
    Tuning,
    apply_tuning,
    load_tuning,
    remove_tuning,
    save_tuning,
)
from cog.errors import EvaluationError, GenerationError
from cog.evaluation import tune_settings
from cog.evaluation.prompts import take_part
from cog.evaluation.protocol import EVALUATION, TUNING
from cog.evaluation.statistics import Interval, make_interval
from cog.evaluation.tune import Tuned, tune
from cog.evaluation.tune_rating import Scores, Trial, find_gain, rate
from cog.index.project import build_corpus_index
from cog.params import Params
from cog.paths import ProjectPaths
from cog.progress import SilentProgress
from cog.records import Prompt
from tests.built_project import build_corpus
from tests.evaluation.stopping import stop_at_text
from tests.tiny_project import VILLAGE_CARD, make_project, write_yaml

SEARCH = (
    ({"phrase_bias": 2.0},),
    (
        {"verify": "absolute", "verify_threshold": 0.005},
        {"verify": "relative", "verify_threshold": 1.0},
    ),
    ({"relevance_weight": 5.0},),
)
DRAW = (({"temperature": 0.7},),)
TUNED = ("phrase_bias", "verify", "verify_threshold", "relevance_weight", "temperature")


def prompts_of(num_documents: int) -> list[Prompt]:
    return [Prompt(f"p{i}", f"d{i // 2}", "a", "b", 0, 2) for i in range(2 * num_documents)]


def test_no_prompt_is_in_both_parts_and_documents_stay_whole() -> None:
    prompts = prompts_of(400)
    tuning, evaluation = take_part(prompts, TUNING), take_part(prompts, EVALUATION)
    assert sorted(p.prompt_id for p in tuning + evaluation) == sorted(p.prompt_id for p in prompts)
    assert {p.document_id for p in tuning}.isdisjoint(p.document_id for p in evaluation)
    assert 0.2 < len(tuning) / len(prompts) < 0.3
    assert take_part(prompts[100:], TUNING) == [p for p in tuning if p in prompts[100:]]


def test_few_documents_are_all_left_to_evaluation() -> None:
    prompts = prompts_of(7)
    assert take_part(prompts, EVALUATION) == prompts
    assert take_part(prompts, TUNING) == []


def test_rating_is_its_formula() -> None:
    reference = {"diversity": 90.0, "perplexity": 16.0}
    plain = {"mauve": 0.9, "diversity": 88.0, "perplexity": 50.0, "tokens_per_step": 3.0}
    assert rate(plain, reference=reference, plain=plain) == pytest.approx(0.9 - log(50 / 16) - 0.04)
    same = {"mauve": 0.9, **reference, "tokens_per_step": 1.5}
    assert rate(same, reference=reference, plain=plain) == pytest.approx(0.9 - 0.1)
    dull = same | {"perplexity": 8.0}  # too likely is as far off as too unlikely
    wild = same | {"perplexity": 32.0}
    assert rate(dull, reference=reference, plain=plain) == pytest.approx(
        rate(wild, reference=reference, plain=plain)
    )
    assert rate(reference, reference=reference, plain=reference) == 0.0  # nothing else measured


def make_trial(diversities: Sequence[float], mauve_error: float = 0.0) -> Trial:
    # of documents that differ in diversity alone
    num = len(diversities)
    scores = {"diversity": sum(diversities) / num, "perplexity": 16.0}
    parts = {
        "diversity": tuple((sum(diversities) - each) / (num - 1) for each in diversities),
        "perplexity": (16.0,) * num,
    }
    return Trial({}, scores, 0.0, parts=parts, mauve_error=mauve_error)


def test_gain_is_told_with_its_interval_for_all_trials_at_once() -> None:
    reference: Scores = {"diversity": 90.0, "perplexity": 16.0}
    parts = {"diversity": (90.0,) * 6, "perplexity": (16.0,) * 6}
    first = make_trial([70, 72, 74, 76, 78, 80])
    steady = make_trial([80, 82, 84, 86, 88, 90])  # ten points more for each document
    uneven = make_trial([85, 70, 90, 75, 95, 95])  # as much in the mean

    def gain(best: Trial, num_trials: int = 2) -> Interval:
        return find_gain(
            best, first, reference=reference, reference_parts=parts, num_trials=num_trials
        )

    # per document the rating is 2 points of diversity in 100 nearer
    changes = np.array([15, -2, 16, -1, 17, 15]) / 50.0
    assert gain(uneven).mean == pytest.approx(changes.mean())
    error = changes.std(ddof=1) / 6**0.5
    assert gain(uneven).high - gain(uneven).mean == pytest.approx(2.5705818 * error)  # t of 5
    assert gain(steady) == Interval(*[pytest.approx(0.2)] * 3)
    assert gain(uneven, 20).low < gain(uneven).low < gain(uneven).mean
    by_mauve = gain(make_trial([80, 82, 84, 86, 88, 90], mauve_error=0.1))
    assert by_mauve.high - by_mauve.mean == pytest.approx(2.5705818 * 0.1)
    assert make_interval(1.0, 0.1, num_documents=4) == Interval(1.0, 1.0, 1.0)  # too few


@pytest.fixture(scope="module")
def built_town(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> ProjectPaths:
    """The village with most of its documents held out."""
    paths = make_project(tmp_path_factory.mktemp("town") / "project")
    write_yaml(paths.card("village"), {**VILLAGE_CARD, "prompts": {"held_out": 0.75, "seed": 0}})
    shutil.copytree(tiny_model, paths.root / "models" / "tiny")
    build_corpus(paths, "village")
    return paths


@pytest.fixture
def town(built_town: ProjectPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProjectPaths:
    """A copy that the test may change, and a short list of tries."""
    shutil.copytree(built_town.root, tmp_path / "town")
    monkeypatch.setattr("cog.evaluation.prompts.MIN_DOCUMENTS", 4)
    monkeypatch.setitem(tune_settings._PHASES, "cog", (tune_settings.Phase(SEARCH),))
    monkeypatch.setattr(tune_settings, "_DRAW", DRAW)
    return ProjectPaths(tmp_path / "town")


def search(paths: ProjectPaths, params: Params, method: str = "nucleus", budget: int = 30) -> Tuned:
    return tune(
        paths,
        params,
        "village",
        num_prompts=4,
        method=method,
        device="cpu",
        progress=SilentProgress(),
        budget=budget,
    )


def test_best_trial_is_kept_and_is_the_default_from_then_on(
    town: ProjectPaths, params: Params
) -> None:
    found = search(town, params)
    # each in turn with the best of those before, the settings of params.yaml first; rounds go on
    # until one finds nothing better, and nothing is tried twice
    first, *others = found.trials
    decoding = params.generate.decoding
    assert first.values == {name: getattr(decoding, name) for name in TUNED}
    best = first
    for some in (*SEARCH, *DRAW):
        tried, others = others[: len(some)], others[len(some) :]
        assert [each.values for each in tried] == [best.values | change for change in some]
        best = max([best, *tried], key=lambda trial: trial.rating)
    values = [tuple(trial.values.items()) for trial in found.trials]
    assert len(set(values)) == len(values)
    best = max(found.trials, key=lambda trial: trial.rating)
    assert found.tuning.values == best.values
    corpus_paths = town.corpus("village")
    kept = load_tuning(corpus_paths)
    assert kept is not None
    assert kept.values == best.values
    assert (kept.index, kept.method) == (found.tuning.index, "nucleus")
    assert len(kept.record["trials"]) == len(found.trials)
    assert kept.record["budget"] == 30
    assert found.gain.mean == pytest.approx(best.rating - first.rating)
    assert kept.record["gain"]["mean"] == found.gain.mean
    settings, word = apply_tuning(
        params.generate.decoding, corpus_paths, method="nucleus", active=None
    )
    assert settings == replace(decoding, **best.values)
    assert "as tuned for this index" in word
    evaluated = {p.prompt_id for p in take_part(load_prompts(corpus_paths.prompts), EVALUATION)}
    texts = corpus_paths.evaluations.glob("*/seed-0.jsonl")
    tuned = {
        text["prompt_id"]
        for path in texts
        for line in path.read_text().splitlines()
        for text in json.loads(line)["texts"]
    }
    assert tuned
    assert tuned.isdisjoint(evaluated)
    assert not list(corpus_paths.evaluations.glob("cog_*.json"))  # cog compare sees no trial


def test_no_more_is_tried_than_the_budget(town: ProjectPaths, params: Params) -> None:
    found = search(town, params, budget=3)
    assert len(found.trials) == 3
    best = max(found.trials, key=lambda trial: trial.rating)
    assert found.tuning.values == best.values


def test_stopped_search_goes_on(
    town: ProjectPaths, params: Params, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished = stop_at_text(monkeypatch, 3)
    with pytest.raises(KeyboardInterrupt):
        search(town, params)
    assert load_tuning(town.corpus("village")) is None
    first = search(town, params)
    num_finished = len(finished)
    again = search(town, params)
    assert len(finished) == num_finished  # nothing is written twice
    assert again.trials == first.trials


def test_tuning_of_another_index_or_method_is_left_out_with_a_word(
    town: ProjectPaths, params: Params
) -> None:
    search(town, params, "greedy")
    corpus_paths = town.corpus("village")
    settings, word = apply_tuning(
        params.generate.decoding, corpus_paths, method="nucleus", active=None
    )
    assert settings == params.generate.decoding
    assert "decoding greedy, not nucleus: left out" in word
    changed = replace(params, index=replace(params.index, vector_dtype="float16"))
    build_corpus_index(town, "village", params=changed, progress=SilentProgress())
    settings, word = apply_tuning(
        params.generate.decoding, corpus_paths, method="greedy", active=None
    )
    assert settings == params.generate.decoding
    assert "is of index" in word
    assert "cog tune --corpus village" in word
    assert remove_tuning(corpus_paths)
    assert not remove_tuning(corpus_paths)
    plain = apply_tuning(params.generate.decoding, corpus_paths, method="greedy", active=None)
    assert plain == (params.generate.decoding, "")


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"format_version": 0}', '{"format_version": 1, "values": {}}', "null"]
)
def test_damaged_tuning_is_one_line(
    own_village: ProjectPaths, params: Params, content: str
) -> None:
    corpus_paths = own_village.corpus("village")
    corpus_paths.tuning.write_text(content)
    with pytest.raises(GenerationError, match="next: cog tune --corpus village --reset"):
        apply_tuning(params.generate.decoding, corpus_paths, method="nucleus", active=None)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("verify", "sometimes"),
        ("verify_threshold", "0.1"),
        ("phrase_bias", True),
        ("temperature", float("nan")),
        ("top_k_documents", 2.5),
        ("index", None),
        ("method", 3),
        ("record", []),
    ],
)
def test_tuning_with_a_wrong_value_names_it(
    own_village: ProjectPaths, params: Params, name: str, value: object
) -> None:
    corpus_paths = own_village.corpus("village")
    values: dict[str, Any] = {
        "verify": "absolute",
        "verify_threshold": 0.001,
        "phrase_bias": 0,
        "temperature": 1.0,
        "top_k_documents": 64,
    }
    save_tuning(corpus_paths, Tuning(values, "i", "m", "nucleus", "2026-01-01", {}))
    assert load_tuning(corpus_paths) is not None
    content = json.loads(corpus_paths.tuning.read_text(encoding="utf-8"))
    (content["values"] if name in content["values"] else content)[name] = value
    corpus_paths.tuning.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(GenerationError, match=rf"tuning.json: [a-z.]*{name} must be .*--reset"):
        apply_tuning(params.generate.decoding, corpus_paths, method="nucleus", active=None)


def test_corpus_with_too_few_held_out_documents_is_said(
    own_village: ProjectPaths, params: Params
) -> None:
    with pytest.raises(EvaluationError, match="eight held-out documents"):
        search(own_village, params)
    assert not own_village.corpus("village").evaluations.exists()
