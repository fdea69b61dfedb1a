"""Random kill points: no index that is in place or active is ever lost, damaged or wrong."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from cog.paths import ProjectPaths
from tests.tiny_project import write_yaml


@pytest.mark.parametrize(
    "num_kills", [10, pytest.param(1000, marks=pytest.mark.slow)], ids=["10", "1000"]
)
def test_nothing_is_lost_or_wrong_after_a_kill_at_any_moment(
    project: ProjectPaths, tiny_model: Path, num_kills: int
) -> None:
    shutil.copytree(tiny_model, project.root / "models" / "tiny")
    params = yaml.safe_load(project.params.read_text())
    params["index"]["keep_versions"] = 2
    write_yaml(project.params, params)
    done = subprocess.run(
        [
            sys.executable,
            *("-W", "ignore:lancedb fork support:RuntimeWarning"),  # it is not open when forked
            *("-W", "ignore:This process:DeprecationWarning"),
            *("-m", "tests.index.kill_driver", str(project.root), str(num_kills), "0"),
        ],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    counts = json.loads(done.stdout)
    assert counts["killed"] == num_kills
    assert counts["verified"] >= num_kills
    assert counts["citations"] >= num_kills
