import json
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from mlflow import MlflowClient

from cog.errors import TrackingError
from cog.evaluation.records import EvaluationResult
from cog.evaluation.tracking import Tracker, choose_uri
from cog.paths import ProjectPaths
from tests.evaluation.making import metric, protocol, result

ROOT = Path(__file__).parents[2]


@pytest.fixture
def tracked(project: ProjectPaths, empty_runs: Path) -> ProjectPaths:
    """A project whose database has MLflow's tables."""
    shutil.copy(empty_runs, project.runs_database)
    return project


@pytest.fixture
def evaluation() -> EvaluationResult:
    scores = [metric("repetition/rep-2", [1.0, 3.0]), metric("copies/tokens", [0.5, 0.25])]
    made = result("village", scores)
    seeds = tuple(replace(made.seeds[0], seed=seed) for seed in (0, 1))
    values = tuple(replace(score, per_seed=(1.0, 2.0)) for score in made.metrics)
    rules = protocol(seeds=(0, 1), selection="first of " + "x" * 7000)
    return replace(made, seeds=seeds, metrics=values, protocol=rules)


def client_of(paths: ProjectPaths) -> MlflowClient:
    return MlflowClient(tracking_uri=f"sqlite:///{paths.runs_database}")


def test_evaluation_is_a_parent_run_with_a_nested_run_per_seed(
    tracked: ProjectPaths, evaluation: EvaluationResult
) -> None:
    run = Tracker(tracked, "study").log_result(evaluation, figures={"a.png": b"picture"})
    client = client_of(tracked)
    parent = client.get_run(run.run_id)
    assert parent.info.status == "FINISHED"
    assert parent.data.metrics["repetition/rep-2"] == 2.0
    assert parent.data.metrics["num_texts"] == 2
    params = parent.data.params
    assert params["index_digest"] == evaluation.index
    assert params["documents_digest"] == evaluation.documents
    assert params["model_fingerprint"] == evaluation.model
    assert params["protocol_digest"] == evaluation.protocol.digest
    assert params["protocol/selection"] == "see params/protocol/selection.txt"
    experiment = client.get_experiment_by_name("study")
    nested = client.search_runs(
        [experiment.experiment_id], f"tags.`mlflow.parentRunId` = '{run.run_id}'"
    )
    assert sorted(each.data.params["seed"] for each in nested) == ["0", "1"]
    assert sorted(each.data.metrics["copies/tokens"] for each in nested) == [1.0, 2.0]
    folder = tracked.root / parent.info.artifact_uri
    assert (folder / "figures" / "a.png").read_bytes() == b"picture"
    long = (folder / "params" / "protocol" / "selection.txt").read_text()
    assert long == evaluation.protocol.selection
    assert json.loads((folder / "evaluation.json").read_text())["corpus"] == "village"


def test_moved_project_still_opens_its_tables(
    tracked: ProjectPaths, evaluation: EvaluationResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    Tracker(tracked, "study").log_result(evaluation)
    moved = ProjectPaths(tracked.root.with_name("moved"))
    tracked.root.rename(moved.root)
    monkeypatch.chdir(moved.root)
    experiment = client_of(moved).get_experiment_by_name("study")
    assert not Path(experiment.artifact_location).is_absolute()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///mlflow.db")
    table = client_of(moved).load_table(experiment.experiment_id, "generations.json")
    assert len(table) == 4
    citation = json.loads(table["citations"][0])[0]
    assert citation["document_id"] == "doc-1"
    assert table["text"][0].startswith(" water runs")
    Tracker(moved, "study").log_result(evaluation)
    assert len(client_of(moved).search_runs([experiment.experiment_id])) == 6


def test_revisions_of_git_and_dvc_are_kept(
    tracked: ProjectPaths, evaluation: EvaluationResult
) -> None:
    (tracked.root / "dvc.lock").write_text("schema: '2.0'\n")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init", "-q"], ["add", "params.yaml"], ["commit", "-q", "-m", "one"]):
        subprocess.run([*git, *words], cwd=tracked.root, check=True)
    run = Tracker(tracked, "study").log_result(evaluation)
    tags = client_of(tracked).get_run(run.run_id).data.tags
    assert len(tags["git_revision"]) == 40
    assert len(tags["dvc_revision"]) == 64
    with tracked.params.open("a") as file:
        file.write("# more\n")
    run = Tracker(tracked, "study").log_result(evaluation)
    again = client_of(tracked).get_run(run.run_id).data.tags
    assert again["git_revision"] == tags["git_revision"] + "-dirty"


@pytest.mark.parametrize("uri", ["file:./mlruns", "file:///somewhere/mlruns", "./mlruns", "mlruns"])
def test_folder_of_files_is_refused_naming_the_migration(
    project: ProjectPaths, monkeypatch: pytest.MonkeyPatch, uri: str
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    with pytest.raises(TrackingError, match="mlflow migrate-filestore --source .*mlruns --target"):
        choose_uri(project)


def test_tracking_uri_of_the_user_is_taken(
    tracked: ProjectPaths,
    evaluation: EvaluationResult,
    empty_runs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shutil.copy(empty_runs, tmp_path / "other.db")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'other.db'}")
    run = Tracker(tracked, "study").log_result(evaluation)
    assert client_of(tracked).get_experiment_by_name("study") is None
    found = MlflowClient(tracking_uri=run.uri).get_run(run.run_id)
    assert Path(found.info.artifact_uri, "evaluation.json").is_file()
    monkeypatch.chdir(tracked.root)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///mlflow.db")
    assert choose_uri(tracked) == f"sqlite:///{tracked.runs_database}"


def test_database_that_is_none_is_said(project: ProjectPaths, evaluation: EvaluationResult) -> None:
    project.runs_database.write_bytes(b"no database " * 100)
    with pytest.raises(TrackingError, match="must be logged to MLflow.*its result is kept"):
        Tracker(project, "study").log_result(evaluation)


def test_five_at_once_all_succeed(project: ProjectPaths) -> None:
    begin = time.time() + 1.0
    words = [sys.executable, "-W", "ignore", "-m", "tests.evaluation.track_process"]
    started = [
        subprocess.Popen(
            [*words, str(project.root), str(number), str(begin)],
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(5)
    ]
    for process in started:
        _, talk = process.communicate(timeout=240)
        assert process.returncode == 0, talk
    client = client_of(project)
    experiment = client.get_experiment_by_name("together")
    runs = client.search_runs([experiment.experiment_id])
    assert len(runs) == 10
    parents = [run for run in runs if "mlflow.parentRunId" not in run.data.tags]
    assert sorted(run.data.metrics["repetition/rep-2"] for run in parents) == [0, 1, 2, 3, 4]
    assert {run.info.status for run in runs} == {"FINISHED"}
