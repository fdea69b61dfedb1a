import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from mlflow import MlflowClient

from cog.cli.main import cli
from cog.errors import (
    CheckpointError,
    CogError,
    CorpusNotFoundError,
    EvaluationError,
    TrackingError,
)
from cog.evaluation.tracking import choose_uri
from cog.paths import ProjectPaths


@pytest.fixture
def own_village(
    village: ProjectPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> ProjectPaths:
    """A built project that the test may change, where an address would be spelt otherwise."""
    root = tmp_path / "o%20n 5% #a;b&c"
    shutil.copytree(village.root, root)
    monkeypatch.setenv("COG_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return ProjectPaths(root)


def run(paths: ProjectPaths, *words: str) -> Result:
    return CliRunner().invoke(cli, ["--project", str(paths.root), "evaluate", *words])


def error_of(result: Result, kind: type[CogError]) -> str:
    assert isinstance(result.exception, kind), result.output
    return str(result.exception)


def test_scores_are_printed_and_logged(own_village: ProjectPaths, empty_runs: Path) -> None:
    shutil.copy(empty_runs, own_village.runs_database)
    words = ("--corpus", "village", "--seeds", "0,1", "--device", "cpu", "--json")
    done = run(own_village, *words)
    assert done.exception is None, done.output
    content = json.loads(done.stdout)
    assert content["system"]["corpus"] == content["prompt_corpus"] == "village"
    assert content["protocol"]["seeds"] == [0, 1]
    scores = {score["name"]: score for score in content["scores"]}
    assert scores["repetition/rep-2"]["num_texts"] == 4 < content["num_qualifying"]
    assert "quality is left out" in done.stderr
    logged = MlflowClient(tracking_uri=choose_uri(own_village)).get_run(content["run"])
    assert logged.data.metrics["repetition/rep-2"] == scores["repetition/rep-2"]["mean"]
    assert logged.data.params["protocol/digest"] == content["digests"]["protocol"]
    assert len(list(own_village.run_artifacts.glob("*/*/artifacts/generations.json"))) == 1
    beside = {path.name for path in own_village.root.parent.iterdir()}
    assert beside == {own_village.root.name, "cache"}


def test_table_for_people_has_intervals_and_counts(own_village: ProjectPaths) -> None:
    done = run(own_village, "--corpus", "village", "--no-track", "--metric", "repetition")
    assert done.exception is None, done.output
    assert "held out are long enough" in done.stdout
    assert "95 % interval" in done.stdout
    assert "real text" in done.stdout
    assert "repetition/diversity" in done.stdout
    assert "perplexity" not in done.stdout
    assert not own_village.runs_database.exists()


def test_decoding_and_prompts_are_taken_from_the_command_line(own_village: ProjectPaths) -> None:
    words = ("--corpus", "village", "--no-track", "--metric", "copies", "--json")
    first = json.loads(run(own_village, *words).stdout)
    second = json.loads(run(own_village, *words, "--decoding", "greedy", "--prompts", "1").stdout)
    assert second["system"]["settings"]["method"] == "greedy"
    assert second["scores"][0]["num_texts"] == 1
    assert first["digests"]["protocol"] != second["digests"]["protocol"]
    tokens = [
        json.loads(run(own_village, *words, *each).stdout)
        for each in (("--system", "cog-tokens"), ("--top-k-documents", "0"))
    ]
    assert tokens[0]["system"] == tokens[1]["system"]
    assert tokens[0]["digests"]["system"] != first["digests"]["system"]
    assert tokens[0]["digests"]["protocol"] == first["digests"]["protocol"]


def test_what_cannot_be_evaluated_is_one_line(
    own_village: ProjectPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("--corpus", "village", "--no-track")
    assert "found: no such folder; next: cog paper retro train" in error_of(
        run(own_village, *words, "--system", "retro"), CheckpointError
    )
    assert "too few texts for MAUVE" in error_of(
        run(own_village, *words, "--metric", "quality"), EvaluationError
    )
    error_of(run(own_village, "--corpus", "vilage"), CorpusNotFoundError)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "file:./mlruns")
    assert "migrate-filestore" in error_of(run(own_village, "--corpus", "village"), TrackingError)


@pytest.mark.parametrize(
    ("judge", "message"),
    [
        ("./nothing", "must come from a hub once, or be a local folder"),
        ("models/broken", "must be safetensors of a kind that transformers knows"),
    ],
)
def test_a_judge_that_cannot_be_loaded_is_one_line_and_texts_are_kept(
    own_village: ProjectPaths, judge: str, message: str
) -> None:
    models = own_village.root / "models"
    shutil.copytree(models / "tiny" / "prefix", models / "broken")
    (models / "broken" / "model.safetensors").write_bytes(b"junk")
    params = own_village.params.read_text()
    assert "evaluate:\n" in params
    own_village.params.write_text(params.replace("evaluate:\n", f"evaluate:\n  judge: {judge}\n"))
    words = ("--corpus", "village", "--no-track", "--metric", "perplexity")
    assert message in error_of(run(own_village, *words), CogError)
    texts = own_village.corpus("village").evaluations.glob("*/seed-*.jsonl")
    assert any(texts) is (judge == "models/broken")


@pytest.mark.parametrize("seeds", ["", "a", "0,0", "1,", "-1"])
def test_seeds_that_are_none_are_wrong_usage(own_village: ProjectPaths, seeds: str) -> None:
    assert run(own_village, "--corpus", "village", "--seeds", seeds).exit_code == 2
