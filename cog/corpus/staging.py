"""Writing beside the old files: a folder goes in, a place to build in comes out, leftovers go."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_PREFIX = ".staging-"


@contextlib.contextmanager
def open_staging(root: Path) -> Iterator[Path]:
    """Make a folder to build in, on the same file system; it is gone after the block.

    :param root: Folder of the corpus; what killed processes left in it is removed.
    :yields: An empty folder.
    """
    root.mkdir(parents=True, exist_ok=True)
    for leftover in root.glob(f"{_PREFIX}*"):
        if not _is_running(leftover.name.removeprefix(_PREFIX).split("-")[0]):
            shutil.rmtree(leftover, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=root, prefix=f"{_PREFIX}{os.getpid()}-") as name:
        yield Path(name)


def replace_folder(built: Path, target: Path) -> None:
    """Put a built folder in the place of an old one.

    :param built: The new folder, in a staging folder.
    :param target: Where it goes; an old folder there is removed.
    """
    old = built.with_name(f"{built.name}.old")
    if target.exists():
        target.replace(old)
    built.replace(target)


def _is_running(process_id: str) -> bool:
    try:
        os.kill(int(process_id), 0)
    except (ValueError, ProcessLookupError):
        return False
    except PermissionError:
        return True
    return True
