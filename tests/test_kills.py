"""Commands that are killed leave what was there, and finish when they are run once more."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cog.paths import ProjectPaths
from tests.kill_commands import CASES

QUICK = ("fetch", "prepare", "switch", "add", "remove")  # of index: tests/index/building


@pytest.mark.parametrize(
    ("names", "num_kills"),
    [
        pytest.param(QUICK, 4, id="quick"),
        *(pytest.param((name,), 40, marks=pytest.mark.slow, id=name) for name in CASES),
    ],
)
def test_a_killed_command_is_run_again_and_nothing_shows_it(
    village: ProjectPaths, tmp_path: Path, names: tuple[str, ...], num_kills: int
) -> None:
    shutil.copytree(village.root, tmp_path / "built")
    done = subprocess.run(
        [
            sys.executable,
            *("-W", "ignore:lancedb fork support:RuntimeWarning"),  # it is not open when forked
            *("-W", "ignore:This process:DeprecationWarning"),
            *("-m", "tests.kill_commands", str(tmp_path), ",".join(names), str(num_kills), "0"),
        ],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    counts = json.loads(done.stdout)
    assert all(counts[name]["killed"] >= num_kills // 2 for name in names), counts
