"""What is put in place is the old whole or the new whole; what killed processes left goes."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from cog import atomic
from cog.atomic import (
    clear_leftovers,
    discard,
    find_leftovers,
    open_staging,
    replacing,
    write_text_atomically,
)
from cog.evaluation.rows import RowCache, digest_text
from cog.training.checkpoint import (
    RunIdentity,
    RunPosition,
    get_random_states,
    save_checkpoint,
)
from tests.kill_atomic import CASES, NEW, OLD, read, write
from tests.killing import run_driver

BUILDING = """
import sys
from pathlib import Path
from cog.atomic import open_staging
with open_staging(Path(sys.argv[1]), is_kept=bool(sys.argv[2])) as staging:
    (staging / "part").write_text("half")
    print(staging.name, flush=True)
    sys.stdin.read()
"""


def start_building(target: Path, *, is_kept: bool) -> tuple["subprocess.Popen[str]", str]:
    """Start a process that builds until it is killed; the name of its hidden folder comes out."""
    process = subprocess.Popen(
        [sys.executable, "-c", BUILDING, str(target), "kept" if is_kept else ""],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


@pytest.mark.parametrize("name", CASES)
def test_a_kill_at_any_touch_leaves_the_old_whole_or_the_new_whole(
    tmp_path: Path, name: str
) -> None:
    assert run_driver("tests.kill_atomic", str(tmp_path), name) >= 8


def test_work_that_goes_on_is_told_from_what_a_killed_process_left(tmp_path: Path) -> None:
    killed, left = start_building(tmp_path / "a", is_kept=False)
    running, staging = start_building(tmp_path / "b", is_kept=False)
    killed.kill()
    killed.communicate()
    assert [path.name for path in find_leftovers(tmp_path)] == [left]
    write_text_atomically(tmp_path / "c", "text")
    assert {path.name for path in tmp_path.iterdir()} == {staging, "c"}
    assert (tmp_path / staging / "part").read_text() == "half"
    running.communicate("")
    assert {path.name for path in tmp_path.iterdir()} == {"c"}


def test_what_a_later_build_goes_on_from_stays(tmp_path: Path) -> None:
    killed, left = start_building(tmp_path / "a", is_kept=True)
    killed.kill()
    killed.communicate()
    failed = open_staging(tmp_path / "a", is_kept=True)
    name = failed.__enter__().name
    failed.__exit__(KeyError, KeyError(), None)
    with open_staging(tmp_path / "a", is_kept=True):
        clear_leftovers(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {left, name}
    assert (tmp_path / left / "part").read_text() == "half"


def test_a_block_that_raises_changes_nothing(tmp_path: Path) -> None:
    target = tmp_path / "place"
    write(target, OLD)

    def fail() -> None:
        with replacing(target) as new:
            write(new, NEW)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert read(target) == OLD
    assert list(tmp_path.iterdir()) == [target]


def test_what_looks_alike_but_is_none_of_ours_stays(tmp_path: Path) -> None:
    names = (".draft~", ".draft~1", ".draft~0123456789ab.txt", "draft~0123456789ab")
    for name in names:
        (tmp_path / name).mkdir()
    (tmp_path / ".file~0123456789ab").write_text("text")
    clear_leftovers(tmp_path)
    assert len(list(tmp_path.iterdir())) == len(names) + 1


@pytest.mark.parametrize("has_exchange", [True, False])
def test_folders_that_are_put_in_one_place_at_once_come_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_exchange: bool
) -> None:
    if not has_exchange:
        monkeypatch.setattr(atomic, "_exchange", lambda one, other: False)
    target = tmp_path / "raw"

    def put(number: int) -> None:
        for turn in range(20):
            with replacing(target) as new:
                write(new, dict.fromkeys("ab", f"{number}-{turn}"))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(put, range(4)))
    content = read(target)
    assert isinstance(content, dict)
    assert content["a"] == content["b"]
    assert list(tmp_path.iterdir()) == [target]


def test_a_link_in_the_place_is_replaced_and_not_followed(tmp_path: Path) -> None:
    write(tmp_path / "elsewhere", OLD)
    (tmp_path / "linked").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    with replacing(tmp_path / "linked") as new:
        write(new, NEW)
    assert not (tmp_path / "linked").is_symlink()
    assert (read(tmp_path / "linked"), read(tmp_path / "elsewhere")) == (NEW, OLD)


def test_a_folder_is_discarded(tmp_path: Path) -> None:
    write(tmp_path / "place", OLD)
    discard(tmp_path / "place")
    assert list(tmp_path.iterdir()) == []


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
