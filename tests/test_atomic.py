"""Atomic writes: a file is the old one or the new one; what killed writers left goes."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from cog.atomic import is_running, write_text_atomically

KILLED = """
import os, signal, sys
from pathlib import Path
from cog import atomic
os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)
atomic.write_text_atomically(Path(sys.argv[1]), "new")
"""


def test_what_a_killed_writer_left_goes_with_the_next_write(tmp_path: Path) -> None:
    path = tmp_path / "active.yaml"
    write_text_atomically(path, "old")
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert path.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 2
    running = tmp_path / f".active.yaml-{os.getppid()}-x.tmp"
    other = tmp_path / ".active.yaml.orig-99999999-x.tmp"
    for each in (running, other):
        each.touch()
    write_text_atomically(path, "newest")
    assert {each.name for each in tmp_path.iterdir()} == {path.name, running.name, other.name}
    assert path.read_text() == "newest"


def test_processes_that_are_gone_are_told_from_those_that_run() -> None:
    assert is_running(str(os.getpid()))
    assert is_running("1")
    for name in ("99999999", "9" * 40, "x", ""):
        assert not is_running(name)
