"""``cog rollback`` and ``switch --index`` with two models: what is active keeps its own model."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

from cog.index.project import build_corpus_index
from cog.model.fingerprint import fingerprint_model
from cog.params import load_params
from cog.paths import ProjectPaths
from cog.progress import SilentProgress
from cog.registry import load_active
from tests.calling import call, call_json, refusal
from tests.model_fixtures import make_tiny_model
from tests.tiny_project import write_yaml

OLD, NEW = "models/tiny", "models/other"
WRITE = ("generate", "--prefix", "The old mill", "--phrase-bias", "4")


def set_model(paths: ProjectPaths, name: str) -> None:
    write_yaml(paths.params, yaml.safe_load(paths.params.read_text()) | {"model": name})


def fingerprint(paths: ProjectPaths, name: str) -> str:
    return fingerprint_model(paths.root / name)


@pytest.fixture(scope="module")
def other_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of the same form with other weights."""
    return make_tiny_model(tmp_path_factory.mktemp("other-model"), seed=1)


@pytest.fixture
def switched(village: ProjectPaths, other_model: Path, tmp_path: Path) -> ProjectPaths:
    """Switched on with one model, then built and switched on with another."""
    root = tmp_path / "project"
    shutil.copytree(village.root, root)
    paths = ProjectPaths(root)
    shutil.copytree(other_model, root / NEW)
    call_json(paths, "switch", "--corpus", "village")
    set_model(paths, NEW)
    params = load_params(paths.params)
    build_corpus_index(paths, "village", params=params, progress=SilentProgress())
    return paths


def test_what_is_active_keeps_its_model_until_a_switch(switched: ProjectPaths) -> None:
    old, new = fingerprint(switched, OLD), fingerprint(switched, NEW)
    assert call_json(switched, "status")["intact"]
    assert call_json(switched, *WRITE)["model"] == old
    assert call_json(switched, *WRITE, "--corpus", "village")["model"] == new
    after = call_json(switched, "switch", "--corpus", "village")["to"]
    assert (after["model"], after["model_folder"]) == (new, NEW)
    assert call_json(switched, *WRITE)["model"] == new


def test_rollback_brings_corpus_index_and_model_back(switched: ProjectPaths) -> None:
    before = load_active(switched)
    assert before is not None
    wanted = call_json(switched, *WRITE)
    call_json(switched, "switch", "--corpus", "village")
    said = call(switched, "rollback").stdout
    assert f", model {NEW}) -> village" in said
    assert said.endswith(f", model {OLD})\n")
    assert call_json(switched, "switch", "--corpus", "village")["changed"]
    after = call_json(switched, "rollback")["to"]
    assert (after["model"], after["model_folder"]) == (fingerprint(switched, OLD), OLD)
    assert load_active(switched) == before
    status = call_json(switched, "status")
    assert (status["intact"], status["active"]["model_folder"]) == (True, OLD)
    assert f"{before.model}  {OLD}" in call(switched, "status").stdout
    found = call_json(switched, *WRITE)
    assert (found["model"], found["index"]) == (before.model, before.index)
    assert found["segments"] == wanted["segments"]
    new = call_json(switched, "switch", "--corpus", "village")["to"]
    back = call_json(switched, "switch", "--corpus", "village", "--index", before.index)["to"]
    assert (new["model_folder"], back["model_folder"]) == (NEW, OLD)


@pytest.mark.parametrize("damage", ["gone", "another"])
def test_a_model_that_is_gone_or_changed_is_refused(
    switched: ProjectPaths, other_model: Path, damage: str
) -> None:
    active = switched.active.read_bytes()
    call_json(switched, "switch", "--corpus", "village")
    now = switched.active.read_bytes()
    wanted = fingerprint(switched, OLD)
    shutil.rmtree(switched.root / OLD)
    if damage == "another":
        shutil.copytree(other_model, switched.root / OLD)
    error = refusal(switched, "rollback")
    assert wanted[:16] in error.wanted
    assert OLD in error.found
    assert error.run.startswith(f"git checkout REVISION -- {OLD} ")
    assert switched.active.read_bytes() == now
    switched.active.write_bytes(active)
    assert OLD in refusal(switched, *WRITE).found
    result = call(switched, "status", "--json")
    assert (result.exit_code, json.loads(result.stdout)["intact"]) == (1, False)
    (switched.root / f"{OLD}.dvc").write_text("outs: []\n")
    assert refusal(switched, *WRITE).run.startswith(f"dvc checkout {OLD} ")


def test_a_record_without_a_folder_means_the_one_of_params(switched: ProjectPaths) -> None:
    content = yaml.safe_load(switched.active.read_text())
    del content["active"]["model_folder"]
    write_yaml(switched.active, content)
    set_model(switched, "elsewhere")
    (switched.root / OLD).rename(switched.root / "elsewhere")
    assert call_json(switched, *WRITE)["model"] == fingerprint(switched, "elsewhere")
    assert call_json(switched, "status")["intact"]
    set_model(switched, NEW)
    assert NEW in refusal(switched, *WRITE).found


def test_a_folder_that_was_renamed_is_found(switched: ProjectPaths) -> None:
    (switched.root / OLD).rename(switched.root / "models" / "renamed")
    assert call_json(switched, "status")["intact"]  # whatever params.yaml names
    set_model(switched, "models/renamed")
    assert call_json(switched, "status")["intact"]
    assert call_json(switched, *WRITE)["segments"]
