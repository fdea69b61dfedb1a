"""``cog paper retro`` as a user runs it, and what it trains as a system."""

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cog.baselines.retro.folder import load_adapter
from cog.baselines.retro.job import train_retro_on_corpus
from cog.baselines.system import System
from cog.baselines.systems import identify_system, open_system
from cog.cli.main import cli
from cog.decoding.request import Request
from cog.errors import CheckpointError, CogError, GenerationError
from cog.evaluation.tracking import follow_run
from cog.params import load_params
from cog.paths import ProjectPaths
from cog.records import Decoding
from tests.built_project import add_corpus


@pytest.fixture
def own_village(
    village: ProjectPaths, tmp_path: Path, empty_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> ProjectPaths:
    monkeypatch.setenv("COG_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    shutil.copytree(village.root, tmp_path / "own")
    paths = ProjectPaths(tmp_path / "own")
    shutil.copy(empty_runs, paths.runs_database)
    return paths


def run(paths: ProjectPaths, *words: str) -> Result:
    command = ["--project", str(paths.root), "paper", "retro", "train", "--device", "cpu", *words]
    return CliRunner().invoke(cli, command, standalone_mode=False)


def identify(paths: ProjectPaths, name: str) -> System:
    params = load_params(paths.params)
    return identify_system(
        paths,
        params,
        corpus_id="village",
        name=name,
        decoding=params.generate.decoding,
        device="cpu",
    )


def error_of(result: Result) -> str:
    assert isinstance(result.exception, CogError), result.exception
    message = str(result.exception)
    assert "\n" not in message
    return message


def test_what_the_command_trains_is_in_mlflow_and_writes_text_as_a_system(
    own_village: ProjectPaths,
) -> None:
    from mlflow import MlflowClient

    params = load_params(own_village.params)
    with pytest.raises(
        CheckpointError, match="needs an adapter in models/retro; .*cog paper retro train"
    ):
        identify(own_village, "retro")
    done = run(own_village, "--corpus", "village", "--max-steps", "4", "--json")
    assert done.exception is None, done.exception
    report: dict[str, Any] = json.loads(done.stdout)
    assert (report["steps"], report["reason"]) == (4, "budget")
    assert report["folder"] == str(own_village.root / "models" / "retro")
    client = MlflowClient(tracking_uri=f"sqlite:///{own_village.runs_database}")
    experiment = client.get_experiment_by_name("retro")
    assert experiment is not None
    logged = client.search_runs([experiment.experiment_id])[0]
    assert logged.data.params["corpus"] == "village"
    for name, value in report["validation"].items():
        assert logged.data.metrics[name] == pytest.approx(value)

    identity = identify(own_village, "retro")
    cog = identify(own_village, "cog")
    assert identity.model != cog.model  # the adapter is part of it
    assert identity.index == cog.index
    assert identity.is_smoke
    assert identity.documents == cog.documents
    decoding = Decoding("greedy", 0.95, 0, 6, 16, 0.0)
    with open_system(
        own_village, params, corpus_id="village", name="retro", device="cpu"
    ) as system:
        text = system.generate([Request("The old mill", decoding)])[0]
    assert text.num_tokens == 6
    taken = error_of(run(own_village, "--corpus", "village", "--max-steps", "5", "--no-track"))
    assert "free for a new run; found: step-00000004" in taken
    words = ("--corpus", "village", "--max-steps", "5", "--no-track", "--resume")
    resumed = run(own_village, *words)
    assert resumed.exception is None, resumed.exception
    assert "resumed at step 4" in resumed.stderr
    assert "5 steps" in resumed.stdout
    assert identify(own_village, "retro") != identity


def test_the_stage_fits_an_adapter_of_the_corpus_own_and_replaces_it(
    own_village: ProjectPaths,
) -> None:
    params = load_params(own_village.params)
    follow = partial(follow_run, own_village, None)
    first = train_retro_on_corpus(own_village, params, "village", follow=follow)
    assert first.steps == params.retro.max_steps
    own = own_village.corpus("village").retro
    assert Path(first.folder) == own
    identify(own_village, "retro")  # is taken
    (own / "run" / "mark").touch()
    again = train_retro_on_corpus(own_village, params, "village", follow=follow)
    assert again.gates == first.gates
    assert not (own / "run" / "mark").exists()


def test_an_adapter_of_another_model_is_refused_and_both_are_named(
    own_village: ProjectPaths,
) -> None:
    done = run(own_village, "--corpus", "village", "--max-steps", "1", "--no-track")
    assert done.exception is None, done.exception
    path = own_village.root / "models" / "retro" / "config.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "model": "e" * 64}))
    wanted = (
        rf"fitted to model {content['model'][:16]} and its retriever; "
        r"found: fitted to model eeeeeeeeeeeeeeee, on corpus village"
    )
    with pytest.raises(CheckpointError, match=wanted):
        identify(own_village, "retro")
    path.write_text(json.dumps({**content, "format_version": 1}))
    with pytest.raises(CheckpointError, match="format version 3; found: 1"):
        identify(own_village, "retro")
    path.write_text(json.dumps({**content, "config": {**content["config"], "dim": "x"}}))
    with pytest.raises(CheckpointError, match="config.dim must be a whole number from 1"):
        load_adapter(path.parent, model=content["model"])
    path.write_text(json.dumps(content))
    path.with_name("adapter.safetensors").unlink()
    with pytest.raises(CheckpointError, match="found: .*No such file.* next: remove models/retro"):
        identify(own_village, "retro")


def test_a_corpus_without_continuations_is_refused_in_one_line(own_village: ProjectPaths) -> None:
    names = ("mill", "bridge", "well", "church")
    texts = [f"The {name} of the village is old." for name in names]
    lines = [json.dumps({"id": text, "title": "", "by": "MIT", "text": text}) for text in texts]
    add_corpus(own_village, "lines", lines)
    words = ("--max-steps", "1", "--no-track", "--corpus")
    wanted = "longer than a chunk; lines has none; found: 4 chunks, none with a continuation"
    assert wanted in error_of(run(own_village, *words, "lines"))
    assert run(own_village, *words, "village").exception is None
    params = load_params(own_village.params)
    with (
        pytest.raises(GenerationError, match=wanted),
        open_system(own_village, params, corpus_id="lines", name="retro", device="cpu"),
    ):
        pass


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--corpus", "hamlet"], "cog index build hamlet"),
        (["--corpus", "vilage"], "vilage"),
    ],
    ids=["unbuilt", "unknown"],
)
def test_bad_input_is_refused_in_one_line(
    own_village: ProjectPaths, words: list[str], said: str
) -> None:
    assert said in error_of(run(own_village, "--no-track", *words))
    assert not (own_village.root / "models" / "retro" / "config.json").exists()
