"""A project of somebody else: who may read it reads it, who is of its group works in it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cog.paths import ProjectPaths

# The interpreter may lie where another user cannot read: the files are given to somebody else, and
# whoever calls has the rights of others, or of the group, without those of an administrator.
WITHOUT = "--bounding-set=-dac_override,-dac_read_search,-fowner,-chown"
CALL = "import os; os.umask(0o002); from cog.cli.main import main; main()"
OWNER = 65534
READS = ("corpus documents village", "doctor --quick")
WRITES = ("corpus fetch village", "switch village")

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None,
    reason="needs root and setpriv, to be another user than that of the files",
)


def call_as_other(paths: ProjectPaths, words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", CALL, "--project", str(paths.root), *words.split()]
    done = subprocess.run(
        ["setpriv", WITHOUT, *command],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    give_away(paths.root)
    return done


def give_away(root: Path) -> None:
    for path in (root, *root.rglob("*")):
        os.chown(path, OWNER, -1, follow_symlinks=False)


@pytest.mark.parametrize("mode", ["u=rwX,go=rX", "ug=rwX,o=rX"])
def test_others_read_and_the_group_works(village: ProjectPaths, tmp_path: Path, mode: str) -> None:
    paths = ProjectPaths(Path(shutil.copytree(village.root, tmp_path / "shared")))
    subprocess.run(["chmod", "-R", mode, str(paths.root)], check=True)
    give_away(paths.root)
    is_group = mode.startswith("ug")
    for words in READS:
        done = call_as_other(paths, words)
        assert done.returncode == 0, done.stderr
    for words in WRITES:
        done = call_as_other(paths, words)
        if is_group:
            assert done.returncode == 0, done.stderr
        else:
            assert "must be readable and writable; found: Permission denied; next: " in done.stderr
            assert done.stderr.count("\n") == 1
    left = {path.stat().st_mode & 0o020 for path in paths.root.rglob("*")}
    assert left == ({0o020} if is_group else {0})
