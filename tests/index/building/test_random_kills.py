"""Random kill points: no index that is in place or active is ever lost, damaged or wrong."""

import shutil
from pathlib import Path

import pytest
import yaml

from cog.paths import ProjectPaths
from tests.killing import run_driver
from tests.tiny_project import write_yaml


@pytest.mark.parametrize(
    "num_kills", [4, pytest.param(1000, marks=pytest.mark.slow)], ids=["4", "1000"]
)
def test_nothing_is_lost_or_wrong_after_a_kill_at_any_moment(
    project: ProjectPaths, tiny_model: Path, num_kills: int
) -> None:
    shutil.copytree(tiny_model, project.root / "models" / "tiny")
    params = yaml.safe_load(project.params.read_text())
    params["index"]["keep_versions"] = 2
    write_yaml(project.params, params)
    counts = run_driver("tests.index.kill_driver", str(project.root), str(num_kills), "0")
    assert counts["killed"] == num_kills
    assert counts["verified"] >= num_kills
    assert counts["citations"] >= num_kills
