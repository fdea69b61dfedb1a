"""Locks: one writer per corpus, and readers that keep a version folder from being removed."""

import fcntl
import json
import os
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path

from cog.progress import Progress

MAX_HOLDER_BYTES = 4096
MAX_COMMAND_CHARS = 200


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a writer lock.

    :param pid: Its process.
    :param host: The machine it runs on.
    :param since: Since when, ISO 8601 in UTC.
    :param command: What was called.
    """

    pid: int
    host: str
    since: str
    command: str

    def __str__(self) -> str:
        return f"pid {self.pid} on {self.host}, since {self.since}: {self.command}"


@contextmanager
def hold_writer_lock(locks: Path, corpus_id: str, *, progress: Progress) -> Iterator[None]:
    """Be the only process that builds a corpus's index while the block runs.

    :param locks: Folder of lock files.
    :param corpus_id: The corpus.
    :param progress: Told who holds the lock, if it has to be waited for.
    :yields: When the lock is held.
    """
    descriptor = _open_lock(_get_writer_lock(locks, corpus_id))
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _read_holder(descriptor) or "a process that is about to say who it is"
            progress.say(f"another process builds {corpus_id} ({holder}); waiting for it")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(asdict(_describe_self())).encode(), 0)
        yield
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def find_writer(locks: Path, corpus_id: str) -> Holder | None:
    """Say who builds the index of a corpus; nothing is waited for, nothing is written.

    :param locks: Folder of lock files.
    :param corpus_id: The corpus.
    :returns: Who holds the writer lock; None if nobody does.
    """
    try:
        descriptor = os.open(_get_writer_lock(locks, corpus_id), os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read_holder(descriptor)
    finally:
        os.close(descriptor)
    return None


@contextmanager
def hold_versions_lock(locks: Path, corpus_id: str) -> Iterator[None]:
    """Be the only process that puts versions of a corpus in place or removes them; for moments.

    :param locks: Folder of lock files.
    :param corpus_id: The corpus.
    :yields: When the lock is held.
    """
    descriptor = _open_lock(locks / f"{corpus_id}-versions.lock")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def hold_writing(locks: Path, corpus_id: str, *, progress: Progress) -> Iterator[None]:
    """Be the only process that builds a corpus, and that switches to it or removes versions of it.

    :param locks: Folder of lock files.
    :param corpus_id: The corpus.
    :param progress: Told who builds it, if that has to be waited for.
    :yields: When both locks are held.
    """
    with (
        hold_writer_lock(locks, corpus_id, progress=progress),
        hold_versions_lock(locks, corpus_id),
    ):
        yield


class ReaderLock:
    """Keeps a version folder from being removed; many readers may hold it.

    Where the lock folder cannot be written (a read-only project) nothing is held, and nothing can
    be removed.

    :param locks: Folder of lock files.
    :param corpus_id: The corpus.
    :param folder: Name of the version folder.
    """

    def __init__(self, locks: Path, corpus_id: str, folder: str) -> None:
        self._descriptor: int | None = None
        try:
            self._descriptor = _open_lock(_get_reader_lock(locks, corpus_id, folder))
        except OSError:
            return
        fcntl.flock(self._descriptor, fcntl.LOCK_SH)

    def release(self) -> None:
        """Let the folder be removed."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


@contextmanager
def try_removal_lock(locks: Path, corpus_id: str, folders: Sequence[str]) -> Iterator[bool]:
    """Keep readers from opening version folders while they are removed.

    :param locks: Folder of lock files.
    :param corpus_id: The corpus.
    :param folders: Names of the version folders.
    :yields: Whether the folders may be removed: no reader holds one.
    """
    with ExitStack() as stack:
        is_free = True
        for folder in folders:
            descriptor = _open_lock(_get_reader_lock(locks, corpus_id, folder))
            stack.callback(os.close, descriptor)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                is_free = False
        yield is_free


def has_reader(locks: Path, corpus_id: str, folder: str) -> bool:
    """Say whether a reader holds a version folder; nothing is waited for, nothing is written.

    :param locks: Folder of lock files.
    :param corpus_id: The corpus.
    :param folder: Name of the version folder.
    :returns: True if one does.
    """
    try:
        descriptor = os.open(_get_reader_lock(locks, corpus_id, folder), os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _describe_self() -> Holder:
    command = " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])[:MAX_COMMAND_CHARS]
    since = datetime.now(UTC).isoformat(timespec="seconds")
    return Holder(os.getpid(), socket.gethostname(), since, command)


def _read_holder(descriptor: int) -> Holder | None:
    try:
        content = json.loads(os.pread(descriptor, MAX_HOLDER_BYTES, 0))
        return Holder(**{field.name: content[field.name] for field in fields(Holder)})
    except (ValueError, KeyError, TypeError):
        return None


def _get_writer_lock(locks: Path, corpus_id: str) -> Path:
    return locks / f"{corpus_id}-build.lock"


def _get_reader_lock(locks: Path, corpus_id: str, folder: str) -> Path:
    return locks / f"{corpus_id}-{folder}.lock"


def _open_lock(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
