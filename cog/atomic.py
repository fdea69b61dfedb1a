"""Atomic writes: a path and a text go in; readers see the old file or the new one, never a part."""

import glob
import os
import tempfile
from pathlib import Path


def write_text_atomically(path: Path, text: str) -> None:
    """Replace a file; a killed process leaves the old one, and what else it left is removed.

    :param path: The file; its folder is made if needed.
    :param text: Its new content, written as UTF-8.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    begin = f".{path.name}-"
    for leftover in path.parent.glob(f"{glob.escape(begin)}*.tmp"):
        if not is_running(leftover.name.removeprefix(begin).split("-")[0]):
            leftover.unlink(missing_ok=True)
    descriptor, name = tempfile.mkstemp(
        dir=path.parent, prefix=f"{begin}{os.getpid()}-", suffix=".tmp"
    )
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as handle:
            handle.write(text)
            handle.flush()
            os.fsync(handle.fileno())
        share(temporary)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def share(path: Path) -> None:
    """Give a file, or a folder and what lies in it, the permissions that the umask admits.

    What ``tempfile`` and safetensors make is for nobody else, whatever the umask.
    """
    umask = os.umask(0o077)
    os.umask(umask)
    for each in (path, *path.rglob("*")):
        if not each.is_symlink():
            each.chmod((0o777 if each.is_dir() else 0o666) & ~umask)


def is_running(process_id: str) -> bool:
    """Tell whether a process runs on this machine."""
    try:
        os.kill(int(process_id), 0)
    except (ValueError, ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
