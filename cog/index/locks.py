"""Locks: one writer per corpus, and readers that keep a version folder from being removed."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cog.progress import Progress


@contextmanager
def hold_writer_lock(locks: Path, corpus_id: str, *, progress: Progress) -> Iterator[None]:
    """Be the only process that builds a corpus's index while the block runs.

    :param locks: Folder of lock files.
    :param corpus_id: The corpus.
    :param progress: Told if another build has to be waited for.
    :yields: When the lock is held.
    """
    descriptor = _open_lock(locks / f"{corpus_id}-build.lock")
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
            progress.say(f"another process (pid {holder}) builds {corpus_id}; waiting for it")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


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
def try_removal_lock(locks: Path, corpus_id: str, folder: str) -> Iterator[bool]:
    """Keep readers from opening a version folder while it is removed.

    :param locks: Folder of lock files.
    :param corpus_id: The corpus.
    :param folder: Name of the version folder.
    :yields: Whether the folder may be removed: no reader holds it.
    """
    descriptor = _open_lock(_get_reader_lock(locks, corpus_id, folder))
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


def _get_reader_lock(locks: Path, corpus_id: str, folder: str) -> Path:
    return locks / f"{corpus_id}-{folder}.lock"


def _open_lock(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
