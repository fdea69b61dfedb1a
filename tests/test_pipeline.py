"""The pipelines for real: DVC and the commands on the tiny corpus, with a tiny model."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from cog.index.versions.folders import hold_build_lock
from cog.paths import ProjectPaths
from cog.pipeline_file import VERSIONS, CorpusEntry, add_corpus_entry
from tests.model_fixtures import make_tiny_model
from tests.tiny_project import VILLAGE_CARD, write_yaml

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / "workflows").glob("*/dvc.yaml"))
PIPELINES = ["", *(str(path.parent.relative_to(ROOT)) for path in WORKFLOWS)]
STAGES = ("fetch", "prepare", "index", "generate", "evaluate")


def run_dvc(paths: ProjectPaths, *words: str) -> subprocess.CompletedProcess[str]:
    folder = Path(sys.executable).parent
    return subprocess.run(
        [folder / "dvc", *words],
        cwd=paths.root,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "COLUMNS": "200"},
    )


def repro(paths: ProjectPaths, *words: str) -> list[str]:
    """Run the pipeline and name the stages that ran, in order."""
    done = run_dvc(paths, "repro", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    return re.findall(r"Running stage '(.+?)'", done.stdout)


def edit(path: Path, *keys: str, value: object) -> None:
    content: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    part = content
    for key in keys[:-1]:
        part = part[key]
    part[keys[-1]] = value
    write_yaml(path, content)


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture
def pipeline(
    project: ProjectPaths, tiny_model: Path, empty_runs: Path, monkeypatch: pytest.MonkeyPatch
) -> ProjectPaths:
    root = project.root
    monkeypatch.setenv("COG_CACHE", str(root.parent / "cache"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    shutil.copy(empty_runs, project.runs_database)
    shutil.copytree(tiny_model, root / "models" / "tiny")
    for name in ("dvc.yaml", ".dvcignore", ".gitignore"):
        shutil.copy(ROOT / name, root)
    shutil.copytree(ROOT / "workflows", root / "workflows")
    (root / ".dvc").mkdir()
    for name in ("config", ".gitignore"):
        shutil.copy(ROOT / ".dvc" / name, root / ".dvc")
    subprocess.run(["git", "init", "--quiet"], cwd=root, check=True)
    return project


def check_index_built_again(pipeline: ProjectPaths) -> None:
    """An index that is built again has other bytes, and runs no later stage."""
    manifest = pipeline.corpus("village").manifest
    content = json.loads(manifest.read_text(encoding="utf-8"))
    shutil.rmtree(pipeline.corpus("village").index)
    manifest.unlink()
    later = ("generate@village", "evaluate@village")
    assert repro(pipeline, *later) == ["index@village"]
    again = json.loads(manifest.read_text(encoding="utf-8"))
    assert again["digest"] == content["digest"]
    assert again["files"].keys() != content["files"].keys()  # names of its files are random


def test_pipeline_builds_every_corpus_and_then_nothing(pipeline: ProjectPaths) -> None:
    ran = repro(pipeline)
    assert sorted(ran) == sorted(f"{s}@{c}" for s in STAGES for c in ("village", "hamlet"))
    for corpus_id in ("village", "hamlet"):
        assert [ran.index(f"{s}@{corpus_id}") for s in STAGES] == sorted(
            ran.index(f"{s}@{corpus_id}") for s in STAGES
        )
        corpus = pipeline.corpus(corpus_id)
        manifest = json.loads(corpus.manifest.read_text(encoding="utf-8"))
        lines = corpus.generations.read_text(encoding="utf-8").splitlines()
        generations = [json.loads(line) for line in lines]
        assert [g["corpus"] for g in generations] == [corpus_id] * 2
        assert {g["index"] for g in generations} == {manifest["digest"]}
        evaluation = json.loads(corpus.evaluation.read_text(encoding="utf-8"))
        assert evaluation["system"]["index"] == manifest["digest"]
        assert {score["name"] for score in evaluation["scores"]} > {"repetition/rep-2"}

    assert repro(pipeline) == []

    edit(pipeline.card("village"), "title", value="Another title")
    edit(pipeline.card("hamlet"), "description", value="Another description.")
    assert repro(pipeline) == []

    evaluated = json.loads(pipeline.corpus("village").evaluation.read_text(encoding="utf-8"))
    assert json.loads(run_dvc(pipeline, "metrics", "show", "--json").stdout)
    metrics = json.loads(pipeline.corpus("village").metrics.read_text(encoding="utf-8"))
    assert metrics == {each["name"]: each["mean"] for each in evaluated["scores"]}
    assert run_dvc(pipeline, "plots", "show", "--json").returncode == 0

    check_index_built_again(pipeline)
    pipeline.active.write_text("active:\n  corpus: village\n", encoding="utf-8")
    assert repro(pipeline) == []


@pytest.mark.slow
def test_a_changed_setting_runs_what_it_decides_and_what_follows(pipeline: ProjectPaths) -> None:
    repro(pipeline)
    edit(pipeline.card("hamlet"), "subset", "proportion", value=0.75)
    assert repro(pipeline) == [f"{s}@hamlet" for s in STAGES[1:]]

    edit(pipeline.params, "evaluate", "num_prompts", value=2)
    assert sorted(repro(pipeline)) == ["evaluate@hamlet", "evaluate@village"]
    edit(pipeline.params, "generate", "min_bits", value=1.0)
    both = [f"{s}@{c}" for s in ("evaluate", "generate") for c in ("hamlet", "village")]
    assert sorted(repro(pipeline)) == both


def test_changed_source_rebuilds_the_corpora_that_take_it_and_no_other(
    pipeline: ProjectPaths,
) -> None:
    other = {**VILLAGE_CARD, "id": "town"}
    write_yaml(pipeline.card("town"), other)
    add_corpus_entry(pipeline, "town", CorpusEntry("town", "texts/village.jsonl"))
    targets = [f"prepare@{name}" for name in ("village", "hamlet", "town")]
    assert len(repro(pipeline, *targets)) == 6

    shutil.copy(pipeline.root / "texts/village.jsonl", pipeline.root / "texts/more.jsonl")
    with (pipeline.root / "texts/more.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps({"id": "well", "title": "", "text": "A well of six words."}) + "\n")
    edit(pipeline.card("village"), "source", "path", value="texts/more.jsonl")
    ran = repro(pipeline, *targets)
    assert sorted(ran) == [
        "fetch@hamlet",
        "fetch@village",
        "prepare@hamlet",
        "prepare@village",
    ]

    shutil.copy(pipeline.root / "texts/more.jsonl", pipeline.root / "texts/village.jsonl")
    ran = repro(pipeline, *targets)  # what the pipeline watches as their source changed in place
    assert sorted(ran) == ["fetch@hamlet", "fetch@town", "fetch@village", "prepare@town"]
    assert repro(pipeline, *targets) == []


def test_killed_index_stage_leaves_the_old_index_serving(pipeline: ProjectPaths) -> None:
    repro(pipeline, "index@village")
    corpus = pipeline.corpus("village")
    before = corpus.manifest.read_bytes()
    digest = json.loads(before)["digest"]
    edit(pipeline.params, "index", "vector_dtype", value="float16")
    folder = Path(sys.executable).parent
    # held, so that the stage cannot end before it is killed, however fast the machine is
    with hold_build_lock(pipeline.corpus("village"), say=None):
        process = subprocess.Popen(
            [folder / "dvc", "repro", "index@village"],
            cwd=pipeline.root,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"},
            start_new_session=True,
        )
        assert process.stdout is not None
        said = next((line for line in process.stdout if "another process builds" in line), "")
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    assert said
    assert corpus.manifest.read_bytes() == before
    assert any(digest.startswith(path.name) for path in corpus.index.iterdir())

    assert repro(pipeline, "index@village") == ["index@village"]
    assert json.loads(corpus.manifest.read_text(encoding="utf-8"))["digest"] != digest


@pytest.mark.parametrize("folder", PIPELINES)
def test_whole_plan_is_shown_before_anything_exists(pipeline: ProjectPaths, folder: str) -> None:
    file = str(Path(folder, "dvc.yaml"))
    stages = yaml.safe_load((pipeline.root / file).read_text(encoding="utf-8"))["stages"]
    ran = repro(pipeline, "--dry", "--force", file)
    begin = f"{file}:" if folder else ""
    own = {f"{begin}{name}@{c}" for name in stages for c in ("village", "hamlet")}
    assert own <= set(ran)
    assert set(ran) - own <= {f"{name}@{c}" for name in STAGES for c in ("village", "hamlet")}
    assert list((pipeline.root / "corpora").iterdir()) == []


def test_a_later_version_of_an_output_runs_its_stage_and_nothing_before(
    pipeline: ProjectPaths,
) -> None:
    edit(pipeline.pipeline_file, "versions", "prepare", value=VERSIONS["prepare"] - 1)
    repro(pipeline, "prepare@village")
    edit(pipeline.pipeline_file, "versions", "prepare", value=VERSIONS["prepare"])
    assert repro(pipeline, "prepare@village") == ["prepare@village"]


def test_pipeline_runs_without_git(pipeline: ProjectPaths) -> None:
    shutil.rmtree(pipeline.root / ".git")
    (pipeline.root / ".dvc/config.local").write_text("[core]\n    no_scm = true\n")
    assert repro(pipeline, "fetch@village") == ["fetch@village"]


def test_failing_stage_says_why_in_one_line(pipeline: ProjectPaths) -> None:
    edit(pipeline.card("village"), "source", "path", value="texts/missing.jsonl")
    done = run_dvc(pipeline, "repro", "fetch@village")
    assert done.returncode != 0
    said = done.stdout + done.stderr
    assert "Traceback" not in said
    assert len(re.findall(r"^cog: .*missing\.jsonl", said, flags=re.MULTILINE)) == 1


@pytest.mark.slow
def test_corpora_that_are_asked_for_are_segmented_and_trained_on(pipeline: ProjectPaths) -> None:
    from cog.model.load import load_model

    profile = yaml.safe_load((ROOT / "cog" / "profiles.yaml").read_text())["tiny"]
    profile["loop"] |= {"max_steps": 3, "seeds_per_batch": 2}
    edit(pipeline.params, "train", "profiles", value={"tiny": profile})
    stages = [f"workflows/training/dvc.yaml:{each}@village" for each in ("segment", "train")]
    assert sorted(repro(pipeline, *stages)) == ["fetch@village", "prepare@village", *stages]
    model = pipeline.corpus("village").model
    first = load_model(model).fingerprint
    assert repro(pipeline, *stages) == []
    edit(pipeline.params, "train", "profiles", "tiny", "loop", "max_steps", value=4)
    assert repro(pipeline, *stages) == stages[1:]
    assert load_model(model).fingerprint != first
    edit(pipeline.params, "train", "profiles", "tiny", "model", "head_width", value=32)
    assert repro(pipeline, *stages) == stages[1:]


@pytest.mark.slow
def test_fitting_of_an_adapter_that_was_killed_goes_on(pipeline: ProjectPaths) -> None:
    edit(pipeline.params, "retro", "max_steps", value=100_000)
    run_folder = pipeline.corpus("village").retro / "run"
    folder = Path(sys.executable).parent
    process = subprocess.Popen(
        [folder / "dvc", "repro", "workflows/baselines/dvc.yaml:retro@village"],
        cwd=pipeline.root,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"},
        start_new_session=True,
    )
    while not list(run_folder.glob("checkpoints/step-*")):
        assert process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    step = int(max(run_folder.glob("checkpoints/step-*")).name.removeprefix("step-"))
    assert not (run_folder.parent / "config.json").exists()

    edit(pipeline.params, "retro", "max_steps", value=step + 2)
    done = run_dvc(pipeline, "repro", "workflows/baselines/dvc.yaml:retro@village")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"resumed at step {step}\n" in done.stdout + done.stderr
    record = json.loads((run_folder.parent / "config.json").read_text(encoding="utf-8"))
    assert record["training"]["step"] == step + 2
    assert repro(pipeline, "workflows/baselines/dvc.yaml:retro@village") == []
