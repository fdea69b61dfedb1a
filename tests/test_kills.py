"""Commands that are killed leave what was there, and finish when they are run once more."""

import shutil
from pathlib import Path

import pytest

from cog.paths import ProjectPaths
from tests.kill_commands import CASES
from tests.killing import run_driver

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
    words = (str(tmp_path), ",".join(names), str(num_kills), "0")
    counts = run_driver("tests.kill_commands", *words)
    assert all(counts[name]["killed"] >= num_kills // 2 for name in names), counts
