"""``cog train`` as a user runs it; the killed run in processes of its own."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from cog.cli.main import cli
from cog.errors import CogError
from cog.model.load import load_model
from cog.paths import ProjectPaths
from tests.tiny_project import write_yaml
from tests.training.making import iter_village, read_losses

ROOT = Path(__file__).parents[2]
SMALL = {"width": 32, "num_layers": 1, "num_heads": 2, "max_positions": 128}


@pytest.fixture
def trainable(project: ProjectPaths, monkeypatch: pytest.MonkeyPatch) -> ProjectPaths:
    """A project with the profile `tiny`, made smaller, and a text file."""
    monkeypatch.setenv("COG_CACHE", str(project.root.parent / "cache"))
    profile = yaml.safe_load((ROOT / "cog" / "profiles.yaml").read_text())["tiny"]
    for role in ("prefix_base", "phrase_base", "retriever_base"):
        profile["model"][role] = {**profile["model"][role], **SMALL, "vocab_size": 500}
    profile["model"] |= {"max_chunk_tokens": 32, "min_chunk_tokens": 8, "head_width": 32}
    profile["loop"] |= {"chunks_per_batch": 8, "seeds_per_batch": 2, "checkpoint_steps": 2}
    params = yaml.safe_load(project.params.read_text())
    params["train"]["profiles"] = {"tiny": profile}
    write_yaml(project.params, params)
    text = "\n\n".join(f"= {each.title} =\n{each.text}" for each in iter_village(24))
    (project.root / "text.txt").write_text(text, encoding="utf-8")
    return project


def run(paths: ProjectPaths, *words: str) -> Result:
    command = ["--project", str(paths.root), "train", "--device", "cpu", *words]
    return CliRunner().invoke(cli, command, standalone_mode=False)


def error_of(result: Result) -> str:
    assert isinstance(result.exception, CogError), result.exception
    message = str(result.exception)
    assert "\n" not in message
    return message


KILLED_AT = 5  # a step; the checkpoint before it is of step 4
BLOCKED = ("lancedb", "lance", "faiss", "gguf", "dvc", "mlflow", "datasets", "pyarrow")
PROGRAM = f"""
import os
import signal
import sys

class Without:
    # a machine that lacks these packages: nothing finds them
    def __init__(self, finder):
        self.finder = finder

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {BLOCKED!r}:
            return None
        return self.finder.find_spec(name, path, target)

if __name__ == "__main__":
    sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
    from cog.cli.main import main
    from cog.training.reporting import MetricsFile

    write = MetricsFile.write

    def write_and_die(self, step, metrics):
        write(self, step, metrics)
        if step == {KILLED_AT}:
            os.kill(os.getpid(), signal.SIGKILL)

    MetricsFile.write = write_and_die
    main()
"""


def run_killed(paths: ProjectPaths, *words: str) -> subprocess.CompletedProcess[str]:
    """Train in a process of its own that is killed in the middle, wherever it is fast or slow."""
    program = paths.root / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, str(program), "--project", str(paths.root), "train"]
    given = ["--data", str(paths.root / "text.txt"), "--no-track", "--device", "cpu"]
    return subprocess.run(
        [*command, *given, *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=paths.root,
    )


def test_killed_run_goes_on_to_the_same_losses_where_no_store_is_installed(
    trainable: ProjectPaths,
) -> None:
    out, whole = trainable.root / "a" / "model", trainable.root / "b" / "model"
    killed = run_killed(trainable, "--max-steps", "24", "--workers", "1", "--out", str(out))
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not (out / "config.yaml").exists()
    kept = sorted((out / "run" / "checkpoints").glob("step-*"))
    assert [each.name for each in kept] == ["step-00000002", "step-00000004"]
    assert list(read_losses(out)) == [1, 2, 3, 4, KILLED_AT]
    given = ("--data", str(trainable.root / "text.txt"), "--no-track", "--workers", "0")
    resumed = run(trainable, *given, "--max-steps", "24", "--out", str(out), "--resume")
    assert resumed.exception is None, resumed.exception
    assert "resumed at step 4\n" in resumed.stderr
    assert load_model(out).config.name == "model"
    assert run(trainable, *given, "--max-steps", "24", "--out", str(whole)).exception is None
    assert read_losses(out) == read_losses(whole)
    assert len(read_losses(out)) == 24


def test_report_is_json_and_the_run_is_in_mlflow(
    trainable: ProjectPaths, empty_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    from mlflow import MlflowClient

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    shutil.copy(empty_runs, trainable.runs_database)
    text = str(trainable.root / "text.txt")
    given = ("--data", text, "--licence", "CC0-1.0", "--max-steps", "10", "--workers", "0")
    result = run(trainable, *given, "--json")
    assert result.exception is None, result.exception
    report: dict[str, Any] = json.loads(result.stdout)
    assert report["steps"] == 10
    assert report["folder"] == str(trainable.root / "models" / "tiny")
    assert report["fingerprint"] == load_model(Path(report["folder"])).fingerprint
    client = MlflowClient(tracking_uri=f"sqlite:///{trainable.runs_database}")
    experiment = client.get_experiment_by_name("train")
    assert experiment is not None
    logged = client.search_runs([experiment.experiment_id])[0]
    assert logged.info.status == "FINISHED"
    assert logged.data.params["data"] == "text.txt"
    card = (trainable.root / "models" / "tiny" / "README.md").read_text(encoding="utf-8")
    assert "| licence of the data | CC0-1.0 |" in card
    assert re.search(r"\| digest of the data \| [0-9a-f]{16,} \|", card)
    assert logged.data.metrics["loss"] == pytest.approx(report["metrics"]["loss"])
    assert "validation/segment_log_probability" in logged.data.metrics


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--profile", "tyni"], "must be one of tiny, .*; found: 'tyni'; next: .* tiny?"),
        (["--data", "missing.txt"], "missing.txt must be a text file"),
        (["--data", "empty.txt"], "training needs text; found: no document"),
        (["--data", "one.txt"], "two documents or more"),
        (["--check-against", "text.txt"], "24 of 24 training documents .*--on-overlap drop"),
        (
            ["--check-against", "text.txt", "--on-overlap", "drop"],
            "training needs text; found: no document",
        ),
        (["--from", "nowhere"], "nowhere must hold config.yaml; found: no such folder; .* --from"),
        (["--from", "text.txt"], "text.txt must hold config.yaml; found: no such folder"),
        (["--out", "text.txt"], "text.txt must be a folder for the model; found: Not a directory"),
    ],
    ids=[
        "profile",
        "missing",
        "empty",
        "one",
        "overlap",
        "all dropped",
        "from",
        "from a file",
        "out",
    ],
)
def test_bad_input_is_refused_in_one_line(
    trainable: ProjectPaths, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    monkeypatch.chdir(trainable.root)
    Path("empty.txt").write_text("\n\n")
    Path("one.txt").write_text("One text of a few words that are said once.\n")
    data = [] if "--data" in words else ["--data", "text.txt"]
    result = run(trainable, "--no-track", "--workers", "0", "--max-steps", "1", *data, *words)
    assert re.search(said, error_of(result))
    assert not (trainable.root / "models" / "tiny" / "config.yaml").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--max-seconds", "inf"], "inf is not a finite number"),
        (["--max-seconds", "nan"], "nan is not a finite number"),
        (["--max-seconds", "0"], "0.0 is not in the range"),
        (["--seed", "4294967296"], "4294967296 is not in the range"),
        (["--on-overlap", "drop"], "--on-overlap goes with --check-against"),
    ],
)
def test_what_no_run_can_do_is_wrong_usage(
    trainable: ProjectPaths, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    import click

    monkeypatch.chdir(trainable.root)
    result = run(trainable, "--data", "text.txt", *words)
    assert isinstance(result.exception, click.UsageError)
    assert said in result.exception.format_message()


@pytest.mark.parametrize("words", [[], ["--data", "text.txt", "--corpus", "village"]])
def test_text_must_be_named_once(trainable: ProjectPaths, words: list[str]) -> None:
    import click

    result = run(trainable, *words)
    assert isinstance(result.exception, click.UsageError)
