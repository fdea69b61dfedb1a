"""Tuning kNN-LM: what is kept, who takes it, and what is refused."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cog.baselines.knn_tuned import apply_knn_tuning, load_knn_tuning, save_knn_tuning
from cog.baselines.project import build_corpus_datastore
from cog.cli.main import cli
from cog.corpus.documents import load_prompts
from cog.errors import CogError, EvaluationError, GenerationError, IndexNotBuiltError
from cog.evaluation.tune_split import EVALUATION, TUNING, take_part
from cog.params import Params
from cog.paths import ProjectPaths
from cog.progress import SilentProgress
from tests.built_project import build_corpus
from tests.model_fixtures import make_tiny_model
from tests.tiny_project import VILLAGE_CARD, make_project, write_yaml

TUNE = ("tune", "--system", "knn-lm", "--corpus", "village")
EVALUATE = ("evaluate", "--corpus", "village", "--system", "knn-lm", "--no-track", "--json")
EVALUATE += ("--metric", "repetition", "--prompts", "2")


@pytest.fixture(scope="module")
def built_town(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> ProjectPaths:
    """The village with most of its documents held out, and a datastore of the rest."""
    paths = make_project(tmp_path_factory.mktemp("town") / "project")
    write_yaml(paths.card("village"), {**VILLAGE_CARD, "prompts": {"held_out": 0.75, "seed": 0}})
    shutil.copytree(tiny_model, paths.root / "models" / "tiny")
    build_corpus(paths, "village")
    return paths


@pytest.fixture
def town(
    built_town: ProjectPaths, params: Params, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> ProjectPaths:
    shutil.copytree(built_town.root, tmp_path / "town")
    monkeypatch.setattr("cog.evaluation.tune_split.MIN_DOCUMENTS", 4)
    paths = ProjectPaths(tmp_path / "town")
    build_corpus_datastore(paths, "village", params=params, progress=SilentProgress(), device="cpu")
    return paths


def run(paths: ProjectPaths, *words: str) -> Result:
    return CliRunner().invoke(cli, ["--project", str(paths.root), *words])


def test_what_is_chosen_predicts_best_and_is_the_default_from_then_on(town: ProjectPaths) -> None:
    before = json.loads(run(town, *EVALUATE).stdout)
    done = run(town, *TUNE, "--device", "cpu", "--json")
    assert done.exception is None, done.output
    content = json.loads(done.stdout)
    record = content["record"]
    chosen = min(record["trials"], key=lambda trial: trial["perplexity"])
    assert content["values"] == {k: v for k, v in chosen.items() if k != "perplexity"}
    assert chosen["perplexity"] <= record["before"]["perplexity"]
    held_out = load_prompts(town.corpus("village").prompts)
    assert record["num_prompts"] == len(take_part(held_out, TUNING))
    assert take_part(held_out, EVALUATION)
    after = run(town, *EVALUATE)
    assert "as tuned for this datastore: top_k" in after.stderr
    plain = run(town, *EVALUATE, "--untuned")
    assert "as tuned" not in plain.stderr
    systems = [json.loads(each.stdout)["system"] for each in (after, plain)]
    assert systems[1]["settings"] == before["system"]["settings"] != systems[0]["settings"]
    # both are of what is there now, so both can be compared
    compared = run(town, "compare", "village", "--system", "knn-lm", "--json")
    assert compared.exception is None, compared.output
    text = run(town, *TUNE, "--device", "cpu").stdout
    assert "the model alone" in text
    assert "kept for this datastore: top_k" in text


def test_tuning_of_another_datastore_is_left_out_with_a_word(
    town: ProjectPaths, params: Params
) -> None:
    corpus_paths = town.corpus("village")
    run(town, *TUNE, "--device", "cpu")
    tuning = load_knn_tuning(corpus_paths)
    assert tuning is not None
    save_knn_tuning(corpus_paths, replace(tuning, datastore="f" * 64))
    settings, word = apply_knn_tuning(params.datastore, corpus_paths)
    assert settings == params.datastore
    assert "is of datastore ffffffffffff, not" in word
    assert "cog tune --system knn-lm --corpus village" in word
    done = run(town, *TUNE, "--reset")
    assert done.stdout == "params.yaml holds again\n"
    assert run(town, *TUNE, "--reset").stdout == "nothing was tuned\n"
    assert apply_knn_tuning(params.datastore, corpus_paths) == (params.datastore, "")


@pytest.mark.parametrize(
    "content",
    ["{", "[]", '{"format_version": 1, "values": {"top_k": 1}}', '{"format_version": 9}'],
)
def test_damaged_tuning_is_one_line(town: ProjectPaths, content: str) -> None:
    town.corpus("village").knn_tuning.write_text(content)
    done = run(town, *EVALUATE)
    assert isinstance(done.exception, GenerationError)
    assert "next: cog tune --system knn-lm --corpus village --reset" in str(done.exception)


def test_what_cannot_be_tuned_is_one_line(town: ProjectPaths, own_village: ProjectPaths) -> None:
    shutil.rmtree(town.corpus("village").datastore)
    missing = run(town, *TUNE)
    assert isinstance(missing.exception, IndexNotBuiltError)
    assert "cog datastore build village" in str(missing.exception)
    few = run(own_village, *TUNE)
    assert isinstance(few.exception, EvaluationError)
    assert "eight held-out documents" in str(few.exception)
    assert run(town, *TUNE, "--decoding", "greedy").exit_code == 2
    assert run(town, "tune", "--system", "retro", "--corpus", "village").exit_code == 2


def test_evaluating_what_does_not_fit_is_one_line(town: ProjectPaths) -> None:
    def refuse(wanted: str, found: str) -> str:
        content = town.params.read_text()
        town.params.write_text(content.replace(wanted, found, 1))
        done = run(town, *EVALUATE)
        town.params.write_text(content)
        assert isinstance(done.exception, CogError), done.output
        return str(done.exception)

    make_tiny_model(town.root / "models" / "other", seed=3)
    other = refuse("model: models/tiny", "model: models/other")
    assert "the datastore of village must be one of model" in other
    assert "next: cog datastore build village" in other
    few = refuse("top_k: 8", "top_k: 100000")
    assert "must hold the 100000 neighbours of a step" in few
    assert "next: lower datastore.top_k in params.yaml" in few
    texts = town.corpus("village").evaluations.glob("*/*.jsonl")
    assert not any(path.read_bytes() for path in texts)
