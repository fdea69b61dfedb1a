"""Locks: who holds a writer lock is said, and asking for it waits for nobody."""

import os
import socket
import sys
import threading
from pathlib import Path

import pytest

from cog.index.locks import ReaderLock, find_writer, hold_writer_lock, try_removal_lock
from cog.progress import SilentProgress


class Waiting(SilentProgress):
    def __init__(self) -> None:
        self.messages: list[str] = []
        self.event = threading.Event()

    def say(self, message: str) -> None:
        self.messages.append(message)
        self.event.set()


def test_holder_of_a_writer_lock_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/some/bin/cog", "index", "build", "village"])
    progress = Waiting()

    def wait() -> None:
        with hold_writer_lock(tmp_path, "village", progress=progress):
            pass

    assert find_writer(tmp_path, "village") is None
    with hold_writer_lock(tmp_path, "village", progress=SilentProgress()):
        holder = find_writer(tmp_path, "village")
        assert holder is not None
        assert (holder.pid, holder.host) == (os.getpid(), socket.gethostname())
        assert (holder.command, holder.since[-6:]) == ("cog index build village", "+00:00")
        assert find_writer(tmp_path, "hamlet") is None
        thread = threading.Thread(target=wait)
        thread.start()
        assert progress.event.wait(20)
    thread.join(20)
    assert str(holder) in progress.messages[0]
    assert find_writer(tmp_path, "village") is None


def test_lock_file_of_another_form_is_no_holder(tmp_path: Path) -> None:
    (tmp_path / "village-build.lock").write_text("123\n")
    assert find_writer(tmp_path, "village") is None
    with hold_writer_lock(tmp_path, "village", progress=SilentProgress()):
        assert find_writer(tmp_path, "village") is not None


def test_folder_is_free_when_no_reader_holds_it(tmp_path: Path) -> None:
    readers = [ReaderLock(tmp_path, "village", "aa") for _ in range(2)]
    with try_removal_lock(tmp_path, "village", ["bb"]) as is_free:
        assert is_free
    for reader in readers:
        with try_removal_lock(tmp_path, "village", ["bb", "aa"]) as is_free:
            assert not is_free
        reader.release()
    with try_removal_lock(tmp_path, "village", ["aa", "bb"]) as is_free:
        assert is_free
