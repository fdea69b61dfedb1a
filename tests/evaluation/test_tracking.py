import json
import shutil
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from mlflow import MlflowClient

from cog.errors import TrackingError
from cog.evaluation import tracking
from cog.evaluation.records import EvaluationResult
from cog.evaluation.tracking import Tracker, choose_uri, follow_run
from cog.paths import ProjectPaths
from cog.progress import SILENT
from tests.evaluation.making import copied, protocol, rep, result

ROOT = Path(__file__).parents[2]


@pytest.fixture
def tracked(project: ProjectPaths, empty_runs: Path) -> ProjectPaths:
    """A project whose database has MLflow's tables."""
    shutil.copy(empty_runs, project.runs_database)
    return project


@pytest.fixture
def evaluation() -> EvaluationResult:
    made = result("village", [rep([1.0, 3.0], [2.0, 5.0]), copied([0.5, 0.25])])
    seeds = tuple(replace(made.seeds[0], seed=seed) for seed in (0, 1))
    values = tuple(replace(score, per_seed=(1.0, 2.0)) for score in made.scores)
    rules = protocol(seeds=(0, 1), selection="first of " + "x" * 7000)
    return replace(made, seeds=seeds, scores=values, protocol=rules)


def client_of(paths: ProjectPaths) -> MlflowClient:
    return MlflowClient(tracking_uri=f"sqlite:///{paths.runs_database}")


def folder_of(paths: ProjectPaths, run_id: str) -> Path:
    return Path(unquote(urlsplit(client_of(paths).get_run(run_id).info.artifact_uri).path))


def test_an_evaluation_is_one_run_that_says_what_was_run_and_how_it_was_measured(
    tracked: ProjectPaths, evaluation: EvaluationResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Tracker(tracked, "study").log_result(evaluation)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", choose_uri(tracked))
    client = client_of(tracked)
    found = client.get_run(run.run_id)
    assert found.info.status == "FINISHED"
    metrics = found.data.metrics
    assert metrics["repetition/rep-2"] == 2.0
    assert metrics["repetition/rep-2.reference"] == 3.5
    assert metrics["num_prompts"] == 2
    by_seed = client.get_metric_history(run.run_id, "repetition/rep-2.by_seed")
    assert [(each.step, each.value) for each in by_seed] == [(0, 1.0), (1, 2.0)]
    params = found.data.params
    assert params["system/name"] == "cog"
    assert params["system/top_k_documents"] == "16"
    assert "system/verify_threshold" not in params  # it was not used
    assert params["protocol/digest"] == evaluation.protocol.digest
    assert params["protocol/selection"] == "see params/protocol/selection.txt"
    assert found.data.tags["cog.index"] == evaluation.system.index
    assert found.data.tags["cog.model"] == evaluation.system.model
    inputs = {each.dataset.name: each for each in found.inputs.dataset_inputs}
    assert set(inputs) == {"documents of village", "index of village", "prompts of village"}
    assert inputs["index of village"].dataset.digest == evaluation.system.index[:36]
    assert inputs["prompts of village"].tags[0].value == "prompts"
    folder = folder_of(tracked, run.run_id)
    long = (folder / "params" / "protocol" / "selection.txt").read_text()
    assert long == evaluation.protocol.selection
    content = json.loads((folder / "evaluation.json").read_text())
    assert content["system"]["corpus"] == "village"
    table = client.load_table(found.info.experiment_id, "generations.json")
    assert len(table) == 4
    citation = json.loads(table["citations"][0])[0]
    assert citation["document_id"] == "doc-1"
    assert table["text"][0].startswith(" water runs")


def test_a_repeat_finds_the_run_that_is_there(
    tracked: ProjectPaths, evaluation: EvaluationResult
) -> None:
    tracker = Tracker(tracked, "study")
    first = tracker.log_result(evaluation)
    later = replace(evaluation, created_at="2027-01-01", seconds={"write": 9.0})
    assert Tracker(tracked, "study").log_result(later) == first
    other = replace(evaluation, scores=evaluation.scores[:1])
    assert tracker.log_result(other) != first
    content: dict[str, object] = {"comparisons": [1]}
    whole = tracker.log_study("curve", content, {"a.png": b"picture"})
    assert tracker.log_study("curve", content, {}) == whole
    assert (folder_of(tracked, whole.run_id) / "figures" / "a.png").read_bytes() == b"picture"


def test_a_moved_project_begins_experiments_anew_inside_itself(
    tracked: ProjectPaths, evaluation: EvaluationResult
) -> None:
    Tracker(tracked, "study").log_result(evaluation)
    moved = ProjectPaths(tracked.root.with_name("moved"))
    tracked.root.rename(moved.root)
    run = Tracker(moved, "study").log_result(evaluation)
    assert run.experiment == "study (moved)"
    assert folder_of(moved, run.run_id).is_relative_to(moved.root)
    assert not tracked.root.exists()


def test_tables_of_another_version_of_mlflow_are_said(
    tracked: ProjectPaths, evaluation: EvaluationResult
) -> None:
    with closing(sqlite3.connect(tracked.runs_database)) as database, database:
        database.execute("UPDATE alembic_version SET version_num = 'abcdef012345'")
    with pytest.raises(TrackingError, match="next: mlflow db upgrade sqlite:"):
        Tracker(tracked, "study").log_result(evaluation)


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
    run = Tracker(tracked, "later").log_result(evaluation)
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
    found = MlflowClient(tracking_uri=choose_uri(tracked)).get_run(run.run_id)
    assert Path(unquote(urlsplit(found.info.artifact_uri).path), "evaluation.json").is_file()
    monkeypatch.chdir(tracked.root)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///mlflow.db")
    assert choose_uri(tracked) == f"sqlite:///{tracked.runs_database}"


def test_database_that_is_none_is_said(project: ProjectPaths, evaluation: EvaluationResult) -> None:
    project.runs_database.write_bytes(b"no database " * 100)
    with pytest.raises(TrackingError, match="must be logged to MLflow.*its result is kept"):
        Tracker(project, "study").log_result(evaluation)


def test_a_password_in_the_address_of_runs_is_not_told() -> None:
    uri = "postgresql://ann:se@cret@db.example:5432/runs"
    for said in (f"cannot connect to {uri}", "Can't locate revision 'abc'"):
        with pytest.raises(TrackingError) as caught, tracking._stated(uri):
            raise OSError(said)
        assert "cret" not in str(caught.value)
    assert "mlflow db upgrade $MLFLOW_TRACKING_URI," in caught.value.run
    for plain in ("sqlite:////runs/a@b/mlflow.db", "https://runs.example/x@y"):
        assert tracking.hide_password(plain) == plain


KILLED = """
import os, signal, sys
from pathlib import Path
from cog.evaluation.tracking import follow_run
from cog.paths import ProjectPaths
from cog.progress import SILENT

def kill(*_):
    os.kill(os.getpid(), signal.SIGKILL)

if sys.argv[2] == "made":  # and nothing more
    from mlflow import MlflowClient
    make = MlflowClient.create_run
    MlflowClient.create_run = lambda *args, **given: kill(make(*args, **given))
with follow_run(ProjectPaths(Path(sys.argv[1])), "train", "killed", {}, SILENT):
    kill()
"""


@pytest.mark.parametrize("moment", ["made", "running"])
def test_a_run_whose_process_was_killed_is_ended_by_the_next(
    tracked: ProjectPaths, moment: str
) -> None:
    words = [sys.executable, "-W", "ignore", "-c", KILLED, str(tracked.root), moment]
    assert subprocess.run(words, cwd=ROOT, check=False).returncode == -9

    def list_states() -> dict[str, str]:
        client = client_of(tracked)
        ids = [each.experiment_id for each in client.search_experiments()]
        return {each.info.run_name: each.info.status for each in client.search_runs(ids)}

    assert list_states() == {"killed": "RUNNING"}
    with follow_run(tracked, "train", "living", {}, SILENT):
        Tracker(tracked, "study")
        assert list_states() == {"killed": "KILLED", "living": "RUNNING"}
    assert list_states() == {"killed": "KILLED", "living": "FINISHED"}
    assert list(tracked.locks.glob("run-*")) == []


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
    assert len(runs) == 5
    assert sorted(run.data.metrics["repetition/rep-2"] for run in runs) == [0, 1, 2, 3, 4]
    assert {run.info.status for run in runs} == {"FINISHED"}
