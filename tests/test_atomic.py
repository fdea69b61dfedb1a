"""Atomic writes: a file is the old one or the new one; what killed writers left goes."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from cog.atomic import is_running, write_text_atomically
from cog.evaluation.cache import RowCache, digest_text
from cog.training.checkpoint import (
    RunIdentity,
    RunPosition,
    get_random_states,
    save_checkpoint,
)

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


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o002, 0o664), (0o077, 0o600)])
def test_what_is_written_has_the_permissions_that_the_umask_admits(
    tmp_path: Path, umask: int, mode: int
) -> None:
    before = os.umask(umask)
    try:
        write_text_atomically(tmp_path / "file", "text")
        RowCache(tmp_path / "rows").save([digest_text("a")], np.zeros((1, 1)))
        net = nn.Linear(2, 2)
        identity, position = RunIdentity({}, "", {}), RunPosition(1, 0.0, 0)
        optimizer = torch.optim.SGD(net.parameters())
        save_checkpoint(
            tmp_path / "run",
            model=net,
            optimizer=optimizer,
            position=position,
            identity=identity,
            random_states=[get_random_states()],
        )
    finally:
        os.umask(before)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 5
    assert {path.stat().st_mode & 0o777 for path in files} == {mode}


def test_processes_that_are_gone_are_told_from_those_that_run() -> None:
    assert is_running(str(os.getpid()))
    assert is_running("1")
    for name in ("99999999", "9" * 40, "x", ""):
        assert not is_running(name)
