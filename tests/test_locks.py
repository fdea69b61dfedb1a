"""Locks: who holds one is said, readers share, and they end with their process."""

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cog.locks import SharedLock, find_holder, hold_lock, is_locked, try_locks

HOLDING = """
import sys
from pathlib import Path
from cog.locks import SharedLock, hold_lock
if sys.argv[2] == "shared":
    lock = SharedLock(Path(sys.argv[1]))
    print("held", flush=True)
    sys.stdin.read()
else:
    with hold_lock(Path(sys.argv[1]), work="waits", say=lambda line: print(line, flush=True)):
        print("held", flush=True)
        sys.stdin.read()
"""


def start_holding(path: Path, kind: str) -> "subprocess.Popen[str]":
    """Start a process that holds a lock until its input ends."""
    return subprocess.Popen(
        [sys.executable, "-c", HOLDING, str(path), kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def read_line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def test_who_holds_a_lock_is_told_to_who_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["/some/bin/cog", "index", "build", "village"])
    path = tmp_path / "locks" / "a.lock"
    assert find_holder(path) is None
    with hold_lock(path, work="builds village"):
        holder = find_holder(path)
        assert holder is not None
        assert (holder.pid, holder.host) == (os.getpid(), socket.gethostname())
        assert (holder.command, holder.since[-6:]) == ("cog index build village", "+00:00")
        waiting = start_holding(path, "alone")
        assert read_line(waiting) == f"another process waits ({holder}); waiting for it\n"
    assert read_line(waiting) == "held\n"
    other = find_holder(path)
    assert other is not None
    assert other.pid == waiting.pid
    waiting.communicate("")
    assert find_holder(path) is None


def test_a_lock_ends_with_a_killed_process(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    process = start_holding(path, "alone")
    assert read_line(process) == "held\n"
    assert is_locked(path)
    process.kill()
    process.communicate()
    assert find_holder(path) is None
    with try_locks(path) as is_free:
        assert is_free


def test_readers_of_other_processes_share_a_lock(tmp_path: Path) -> None:
    path, other = tmp_path / "a.lock", tmp_path / "b.lock"
    processes = [start_holding(path, "shared") for _ in range(2)]
    assert [read_line(each) for each in processes] == ["held\n"] * 2
    own = SharedLock(path)
    for each in processes:
        with try_locks(other, path) as is_free:
            assert not is_free
        each.communicate("")
    assert is_locked(path)
    own.release()
    own.release()
    assert not is_locked(path)
    with try_locks(other, path) as is_free:
        assert is_free
        assert is_locked(other)


def test_lock_file_of_another_form_is_no_holder(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    path.write_text("123\n")
    assert find_holder(path) is None
    with hold_lock(path):
        assert find_holder(path) is not None


def test_a_lock_file_that_is_removed_by_its_holder_is_made_again(tmp_path: Path) -> None:
    # else who waited holds a file without a name, and the next one another of that name
    path, told, held, go_on = tmp_path / "a.lock", *(threading.Event() for _ in range(3))

    def wait() -> None:
        with hold_lock(path, say=lambda _: told.set()):
            held.set()
            assert go_on.wait(20)

    thread = threading.Thread(target=wait)
    with hold_lock(path):
        thread.start()
        assert told.wait(20)
        path.unlink()
    assert held.wait(20)
    with try_locks(path) as is_free:
        assert not is_free
    go_on.set()
    thread.join(20)


@pytest.mark.parametrize("umask", [0o022, 0o002])
def test_lock_files_have_the_permissions_that_the_umask_admits(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with hold_lock(tmp_path / "a.lock"):
            SharedLock(tmp_path / "b.lock").release()
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o666 & ~umask}
