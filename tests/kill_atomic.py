"""Kills at every touch of what puts things in place: ``-m tests.kill_atomic FOLDER NAME``."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from cog import atomic
from tests.killing import kill_at_every_touch

OLD, NEW = {"a": "old", "b/c": "old"}, {"a": "new", "b/c": "new"}
Content = dict[str, str] | str | None


def write(path: Path, content: Content) -> None:
    """Write a file, or a folder of files."""
    if isinstance(content, str):
        path.write_text(content)
    elif content is not None:
        for name, text in content.items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_text(text)


def read(path: Path) -> Content:
    """Read what :func:`write` wrote; None if nothing is there."""
    if path.is_file():
        return path.read_text()
    if not path.is_dir():
        return None
    files = (each for each in sorted(path.rglob("*")) if each.is_file())
    return {each.relative_to(path).as_posix(): each.read_text() for each in files}


def check_replacing(root: Path, old: Content, new: Content, *, has_exchange: bool) -> int:
    """Kill a replacement; what is there must be the old or the new, and leftovers must go."""
    target = root / "place"
    if not has_exchange:
        atomic._exchange = lambda one, other: False

    def replace() -> None:
        with atomic.replacing(target) as path:
            write(path, new)

    def check(number: int) -> None:
        if has_exchange:
            assert read(target) in ((old, new) if number else (new,)), (number, read(target))
        atomic.clear_leftovers(root)
        assert read(target) in ((old, new) if number else (new,)), (number, read(target))
        assert {path.name for path in root.iterdir()} <= {target.name}, number
        shutil.rmtree(root)
        root.mkdir()
        write(target, old)

    write(target, old)
    return kill_at_every_touch(str(root), replace, check)


def check_discard(root: Path) -> int:
    """Kill a removal; what is there must be whole or gone."""
    target = root / "place"

    def check(number: int) -> None:
        assert read(target) in ((OLD, None) if number else (None,)), number
        atomic.clear_leftovers(root)
        write(target, OLD)
        assert {path.name for path in root.iterdir()} == {target.name}, number

    write(target, OLD)
    return kill_at_every_touch(str(root), lambda: atomic.discard(target), check)


CASES: dict[str, Callable[[Path], int]] = {
    "new-file": lambda root: check_replacing(root, None, "new", has_exchange=True),
    "file": lambda root: check_replacing(root, "old", "new", has_exchange=True),
    "new-folder": lambda root: check_replacing(root, None, NEW, has_exchange=True),
    "folder": lambda root: check_replacing(root, OLD, NEW, has_exchange=True),
    "folder-for-file": lambda root: check_replacing(root, "old", NEW, has_exchange=True),
    "folder-by-two-renames": lambda root: check_replacing(root, OLD, NEW, has_exchange=False),
    "discard": check_discard,
}

if __name__ == "__main__":
    sys.stdout.write(str(CASES[sys.argv[2]](Path(sys.argv[1]))))
