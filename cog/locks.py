"""Locks between processes: the path of a lock file goes in; what it stands for is held.

They are ``flock`` locks: they end with the process that holds them, however it ends, many may read
while nobody writes, and who may only read the file can hold it too. (filelock's own exclusive lock
knows no readers, and its lock for readers is a database that each of them has to write to.) A file
that can neither be made nor read is an ``OSError``.
"""

import contextlib
import errno
import fcntl
import json
import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

MAX_HOLDER_BYTES = 4096
MAX_COMMAND_CHARS = 200
Say = Callable[[str], None]  # tells a person one line
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a lock."""

    pid: int  # its process
    host: str  # the machine it runs on
    since: str  # since when, ISO 8601 in UTC
    command: str  # what was called

    def __str__(self) -> str:
        return f"pid {self.pid} on {self.host}, since {self.since}: {self.command}"


@contextmanager
def hold_lock(path: Path, *, work: str = "", say: Say | None = None) -> Iterator[None]:
    """Be the only one that holds a lock while the block runs; it is waited for.

    The file may be removed by who holds it. ``say`` is told who holds it, and what for (``work``,
    as in "builds village"), before it is waited for.
    """

    def tell(holder: Holder | None) -> None:
        if say is not None:
            name = holder or "a process that is about to say who it is"
            say(f"another process {work} ({name}); waiting for it")

    descriptor = _acquire(path, fcntl.LOCK_EX, tell)
    assert descriptor is not None
    try:
        with contextlib.suppress(OSError):  # who may only read the file leaves it as it is
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps(asdict(_describe_self())).encode(), 0)
        yield
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


@contextmanager
def try_locks(*paths: Path) -> Iterator[bool]:
    """Hold locks while the block runs if nobody holds one, at once; yields whether all are held."""
    with ExitStack() as stack:
        is_free = True
        for path in paths:
            descriptor = _acquire(path, fcntl.LOCK_EX, None)
            if descriptor is None:
                is_free = False
            else:
                stack.callback(os.close, descriptor)
        yield is_free


class SharedLock:
    """Holds a lock together with others that share it; a right to read the file is enough."""

    def __init__(self, path: Path) -> None:
        self._descriptor = _acquire(path, fcntl.LOCK_SH, lambda _: None)

    def release(self) -> None:
        """Let it go."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def make_lock(path: Path) -> None:
    """Make a lock file, for readers that may read it but could not make it."""
    SharedLock(path).release()


def find_holder(path: Path) -> Holder | None:
    """Say who holds a lock alone, and said who it is; nothing is waited for, nothing is written."""
    return _look(path, fcntl.LOCK_SH, _read_holder)


def is_locked(path: Path) -> bool:
    """Whether anybody holds a lock, alone or shared; nothing is waited for, nothing is written."""
    return _look(path, fcntl.LOCK_EX, lambda _: True) or False


def _look(path: Path, kind: int, describe: Callable[[int], Found]) -> Found | None:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return describe(descriptor)
    finally:
        os.close(descriptor)
    return None


def _acquire(path: Path, kind: int, tell: Callable[[Holder | None], None] | None) -> int | None:
    # None if somebody holds it and it is not waited for, since there is nothing to tell that
    while True:
        descriptor = _open(path, is_shared=kind == fcntl.LOCK_SH)
        try:
            try:
                fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                if tell is None:
                    os.close(descriptor)
                    return None
                tell(_read_holder(descriptor))
                fcntl.flock(descriptor, kind)
        except BaseException:
            os.close(descriptor)
            raise
        # Who held it may have removed the file meanwhile; then others lock the next of this name.
        if _is_at(path, descriptor):
            return descriptor
        os.close(descriptor)


def _open(path: Path, *, is_shared: bool) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Readers ask for no more than reading: over NFS, what is held alone has to be open for writing.
    flags = os.O_RDONLY if is_shared else os.O_RDWR
    try:
        return os.open(path, flags | os.O_CREAT, 0o666)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        try:
            return os.open(path, os.O_RDONLY)
        except OSError:
            raise error from None


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
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
