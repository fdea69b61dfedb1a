"""Tuning baselines: as many trials each, what is kept, who takes it, and what is refused."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cog.baselines.datastore import build_corpus_datastore
from cog.baselines.system import BASELINES, COG
from cog.cli.main import cli
from cog.corpus.documents import load_prompts
from cog.decoding.tuning import load_tuning
from cog.errors import CogError, EvaluationError, GenerationError, IndexNotBuiltError
from cog.evaluation.prompts import take_part
from cog.evaluation.protocol import EVALUATION, TUNING
from cog.evaluation.tune_settings import list_phases
from cog.params import Params
from cog.paths import ProjectPaths
from cog.progress import SilentProgress
from tests.built_project import build_corpus
from tests.model_fixtures import make_tiny_model
from tests.tiny_project import VILLAGE_CARD, make_project, write_yaml

EVALUATE = ("evaluate", "--corpus", "village", "--no-track", "--json", "--device", "cpu")
EVALUATE += ("--metric", "repetition", "--prompts", "2", "--system")


@pytest.fixture(scope="module")
def built_town(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> ProjectPaths:
    """The village with most of its documents held out."""
    paths = make_project(tmp_path_factory.mktemp("town") / "project")
    write_yaml(paths.card("village"), {**VILLAGE_CARD, "prompts": {"held_out": 0.75, "seed": 0}})
    shutil.copytree(tiny_model, paths.root / "models" / "tiny")
    make_tiny_model(paths.root / "models" / "tokens-village", seed=1)
    build_corpus(paths, "village")
    return paths


@pytest.fixture
def town(
    built_town: ProjectPaths, params: Params, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> ProjectPaths:
    shutil.copytree(built_town.root, tmp_path / "town")
    monkeypatch.setattr("cog.evaluation.prompts.MIN_DOCUMENTS", 4)
    paths = ProjectPaths(tmp_path / "town")
    build_corpus_datastore(paths, "village", params=params, progress=SilentProgress(), device="cpu")
    return paths


def run(paths: ProjectPaths, *words: str) -> Result:
    return CliRunner().invoke(cli, ["--project", str(paths.root), *words])


def tune(paths: ProjectPaths, system: str, *words: str) -> Result:
    about = ("--corpus", "village", "--system", system, "--prompts", "2", "--device", "cpu")
    return run(paths, "tune", *about, *words)


def evaluate(paths: ProjectPaths, system: str, *words: str) -> tuple[dict[str, Any], str]:
    done = run(paths, *EVALUATE, system, *words)
    assert done.exception is None, done.output
    settings: dict[str, Any] = json.loads(done.stdout)["system"]["settings"]
    return settings, done.stderr


@pytest.mark.parametrize(
    ("system", "method", "is_by_likelihood"),
    [
        ("transformer", "nucleus", False),
        ("transformer-ft", "nucleus", False),
        ("in-context", "greedy", True),
        ("knn-lm", "greedy", True),
    ],
)
def test_what_is_chosen_is_the_best_tried_and_used_from_then_on(
    town: ProjectPaths, system: str, method: str, is_by_likelihood: bool
) -> None:
    words = ("--decoding", method)
    before, _ = evaluate(town, system, *words)
    done = tune(town, system, *words, "--trials", "8", "--json")
    assert done.exception is None, done.output
    content = json.loads(done.stdout)
    record = content["record"]
    assert (len(record["trials"]), record["budget"]) == (8, 8)
    assert ("per_word" in record["trials"][0]) is is_by_likelihood
    held_out = load_prompts(town.corpus("village").prompts)
    assert record["num_prompts"] == min(2, len(take_part(held_out, TUNING)))
    assert take_part(held_out, EVALUATION)
    best = max(record["trials"], key=lambda trial: trial["rating"])
    chosen = content["values"] | content["options"]
    assert chosen.items() <= best.items()
    after, said = evaluate(town, system, *words)
    assert "as tuned for this" in said
    own = {name.removeprefix("knn_"): value for name, value in after.items()}
    assert all(own.get(name, value) == value for name, value in chosen.items())
    plain, said = evaluate(town, system, *words, "--untuned")
    assert "as tuned" not in said
    assert plain == before
    # both are of what is there now, so both can be compared
    compared = run(town, "compare", "village", "--system", system, "--json")
    assert compared.exception is None, compared.output
    told = tune(town, system, *words, "--trials", "8").stdout
    assert "8 trials of 8 that every system has, on 2 prompts for tuning" in told
    assert "kept for this" in told
    kind = "references" if is_by_likelihood else "texts"
    assert f"by {kind} rated better" in told or f"by {kind} nothing is rated better" in told
    assert tune(town, system, "--reset").stdout == "params.yaml holds again\n"
    assert tune(town, system, "--reset").stdout == "nothing was tuned\n"


def test_settings_of_retrieval_and_of_drawing_share_the_trials(town: ProjectPaths) -> None:
    done = tune(town, "knn-lm", "--trials", "16", "--decoding", "nucleus", "--json")
    assert done.exception is None, done.output
    trials = json.loads(done.stdout)["record"]["trials"]
    kinds = ["per_word" in trial for trial in trials]
    assert kinds == sorted(kinds, reverse=True)
    assert len(kinds) == 16
    assert {True, False} == set(kinds)
    neighbours = {trial["top_k"] for trial in trials if "per_word" not in trial}
    assert len(neighbours) == 1  # chosen before


def test_every_system_but_variants_can_be_tuned() -> None:
    for system in (COG, *BASELINES):
        assert list_phases(system, "nucleus")


def test_placement_of_chunks_is_a_setting_only_where_it_is_not_the_usual_one(
    town: ProjectPaths,
) -> None:
    plain, _ = evaluate(town, "in-context")
    assert "placement" not in plain
    tune(town, "in-context", "--trials", "1")
    path = town.corpus("village").get_baseline_tuning("in-context")
    content = json.loads(path.read_text())
    content["options"] = {"placement": "nearest-first"}
    path.write_text(json.dumps(content))
    changed, _ = evaluate(town, "in-context", "--top-k-documents", "4")
    assert changed["placement"] == "nearest-first"
    compared = run(town, "compare", "village", "--system", "in-context", "--json")
    assert compared.exception is None, compared.output


def test_tuning_of_another_datastore_is_left_out_with_a_word(town: ProjectPaths) -> None:
    tune(town, "knn-lm", "--trials", "2", "--decoding", "greedy")
    path = town.corpus("village").get_baseline_tuning("knn-lm")
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | {"index": "f" * 64}))
    _, said = evaluate(town, "knn-lm", "--decoding", "greedy")
    assert "is of index ffffffffffff, not" in said
    assert "cog tune --corpus village --system knn-lm" in said


@pytest.mark.parametrize(
    "change",
    [{"format_version": 9}, {"values": []}, {"options": {"top_k": 0}}, {"options": {"near": 1}}],
)
def test_damaged_tuning_is_one_line(town: ProjectPaths, change: dict[str, Any]) -> None:
    tune(town, "knn-lm", "--trials", "1", "--decoding", "greedy")
    path = town.corpus("village").get_baseline_tuning("knn-lm")
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    done = run(town, *EVALUATE, "knn-lm")
    assert isinstance(done.exception, GenerationError)
    assert "next: cog tune --corpus village --system knn-lm --reset" in str(done.exception)


def test_what_cannot_be_tuned_is_one_line(town: ProjectPaths, own_village: ProjectPaths) -> None:
    shutil.rmtree(town.corpus("village").datastore)
    missing = tune(town, "knn-lm")
    assert isinstance(missing.exception, IndexNotBuiltError)
    assert "cog paper datastore build village" in str(missing.exception)
    assert load_tuning(town.corpus("village"), "knn-lm") is None
    few = tune(own_village, "transformer")
    assert isinstance(few.exception, EvaluationError)
    assert "eight held-out documents" in str(few.exception)
    nothing = tune(town, "transformer", "--decoding", "greedy")
    assert isinstance(nothing.exception, EvaluationError)
    assert "cog tune --corpus village --system transformer --decoding nucleus" in str(
        nothing.exception
    )
    assert tune(town, "cog-phrases").exit_code == 2


def test_evaluating_what_does_not_fit_is_one_line(town: ProjectPaths) -> None:
    def refuse(wanted: str, found: str) -> str:
        content = town.params.read_text()
        town.params.write_text(content.replace(wanted, found, 1))
        done = run(town, *EVALUATE, "knn-lm")
        town.params.write_text(content)
        assert isinstance(done.exception, CogError), done.output
        return str(done.exception)

    make_tiny_model(town.root / "models" / "other", seed=3)
    other = refuse("model: models/tiny", "model: models/other")
    assert "the datastore of village must be one of model" in other
    assert "next: cog paper datastore build village" in other
    few = refuse("top_k: 8", "top_k: 100000")
    assert "must hold the 100000 neighbours of a step" in few
    assert "next: lower datastore.top_k in params.yaml" in few
    texts = town.corpus("village").evaluations.glob("*/*.jsonl")
    assert not any(path.read_bytes() for path in texts)
