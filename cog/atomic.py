"""Putting files and folders in place at once: what is there is the old whole or the new whole.

What is made lies in a hidden folder beside its place, ``.NAME~DIGITS``, until it is whole. The file
``lock`` in that folder is held while the process lives, so that what a killed process left is told
from work that goes on, on this machine or another; whoever comes next to the same place clears it.
"""

import contextlib
import ctypes
import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from cog.locks import is_locked, try_locks

LOCK_NAME = "lock"
OLD_NAME = "old"  # what was in the place, while the new is put there
STAGING = re.compile(r"\.(.+)~[0-9a-f]{12}")
KEPT = "+"  # instead of ~, where what a killed process left is no waste
IN_THE_WAY = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EISDIR)
AT_FDCWD, RENAME_EXCHANGE = -100, 2  # of Linux


def write_text_atomically(path: Path, text: str) -> None:
    """Replace a file by one of this text, in UTF-8; its folder is made if needed."""
    with replacing(path) as new:
        new.write_text(text, encoding="utf-8", newline="")


def append_text(path: Path, text: str) -> None:
    """Add whole lines to a file; a line that a power cut left unfinished stays by itself."""
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            text = "\n" + text
        os.write(descriptor, text.encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """Make a file or a folder beside its place, and put it there when the block is done.

    A block that raises, and a process that is killed, leave what was there. Yields where the block
    makes it; nothing is there yet.
    """
    with open_staging(target) as staging:
        new = staging / "new"
        yield new
        sync_tree(new)
        _put(new, target, old=staging / OLD_NAME)
        sync_folder(target.parent)


@contextmanager
def open_staging(target: Path, *, is_kept: bool = False) -> Iterator[Path]:
    """Make a hidden folder beside a place, to build in; it is gone after the block.

    What killed processes left beside the place is cleared. If ``is_kept``, what was built stays
    where the block raises or the process is killed, until the caller clears it: the next one goes
    on from it.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    clear_leftovers(target.parent)
    with ExitStack() as stack:
        staging = _make_staging(target, KEPT if is_kept else "~", stack)
        try:
            yield staging
            is_kept = False
        finally:
            if not is_kept:
                shutil.rmtree(staging, ignore_errors=True)


def discard(folder: Path) -> None:
    """Remove a folder at once: nothing that is half gone is ever taken for it."""
    with open_staging(folder) as staging:
        folder.rename(staging / "gone")


def find_leftovers(folder: Path) -> list[Path]:
    """Find what killed processes left in a folder; nothing is changed."""
    found = sorted(path for path in folder.glob(".*~*") if STAGING.fullmatch(path.name))
    return [path for path in found if path.is_dir() and not is_locked(path / LOCK_NAME)]


def clear_leftovers(folder: Path) -> None:
    """Remove what killed processes left in a folder."""
    for path in find_leftovers(folder):
        # of somebody else, or gone meanwhile: a leftover that stays does no harm
        with contextlib.suppress(OSError), try_locks(path / LOCK_NAME) as is_free:
            if is_free:
                _put_back(path)
                shutil.rmtree(path, ignore_errors=True)


def share(path: Path) -> None:
    """Give a file or folder the rights that the umask admits: ``tempfile`` gives others none."""
    umask = os.umask(0o077)
    os.umask(umask)
    for each in (path, *path.rglob("*")):
        if not each.is_symlink():
            each.chmod((0o777 if each.is_dir() else 0o666) & ~umask)


def copy_linked(folder: Path, target: Path) -> None:
    """Copy a folder whose files are never written to again: they are linked, where that works."""
    shutil.copytree(folder, target, copy_function=_link)


def _link(source: str, target: str) -> str:
    try:
        os.link(Path(source).resolve(), target)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target)
    return target


def sync_folder(path: Path) -> None:
    """Make renames inside a folder, or the content of a file, survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(path: Path) -> None:
    """Make a file, or every file and name below a folder, survive a power cut."""
    for each in (*sorted(path.rglob("*")), path):
        sync_folder(each)


def _make_staging(target: Path, mark: str, stack: ExitStack) -> Path:
    while True:
        staging = target.with_name(f".{target.name}{mark}{os.urandom(6).hex()}")
        staging.mkdir()
        # until it is locked it looks left over, and who clears such folders may be faster
        with contextlib.suppress(FileNotFoundError, FileExistsError):
            if stack.enter_context(try_locks(staging / LOCK_NAME)):
                return staging


def _put(new: Path, target: Path, *, old: Path) -> None:
    # A file replaces a file, and a folder nothing, by a rename; else two names are exchanged, and
    # where the system cannot do that there is nothing in the place for a moment.
    while True:
        try:
            new.replace(target)
            return
        except OSError as error:
            if error.errno not in IN_THE_WAY:
                raise
        if _exchange(new, target):
            return
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(old, ignore_errors=True)  # another process was between the two renames
            target.rename(old)


def _put_back(staging: Path) -> None:
    # who was killed between the two renames: the place is empty, and what was there lies here
    old, form = staging / OLD_NAME, STAGING.fullmatch(staging.name)
    if form and os.path.lexists(old) and not os.path.lexists(staging.with_name(form[1])):
        old.rename(staging.with_name(form[1]))


def _exchange(one: Path, other: Path) -> bool:
    # whether it was done: not by every file system, nor outside Linux
    try:
        rename = ctypes.CDLL(None).renameat2
    except (OSError, AttributeError):
        return False
    names = os.fsencode(one), os.fsencode(other)
    return bool(rename(AT_FDCWD, names[0], AT_FDCWD, names[1], RENAME_EXCHANGE) == 0)
