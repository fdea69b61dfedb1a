"""Writing beside the old files: a folder goes in, a place to build in comes out, leftovers go."""

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from cog.atomic import is_running

_PREFIX = ".staging-"


@contextlib.contextmanager
def open_staging(root: Path) -> Iterator[Path]:
    """Make a folder to build in, on the same file system; it is gone after the block.

    :param root: Folder of the corpus; what killed processes left in it is removed.
    :yields: An empty folder.
    """
    root.mkdir(parents=True, exist_ok=True)
    for leftover in root.glob(f"{_PREFIX}*"):
        if not is_running(leftover.name.removeprefix(_PREFIX).split("-")[0]):
            shutil.rmtree(leftover, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=root, prefix=f"{_PREFIX}{os.getpid()}-") as name:
        yield Path(name)


def replace_folder(built: Path, target: Path) -> None:
    """Put a built folder in the place of an old one.

    :param built: The new folder, in a staging folder.
    :param target: Where it goes; an old folder there is removed.
    """
    number = 0
    while True:
        try:
            built.rename(target)
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
        number += 1  # of two processes, both put theirs in place, one after the other
        with contextlib.suppress(FileNotFoundError):
            target.rename(built.with_name(f"{built.name}.old-{number}"))
