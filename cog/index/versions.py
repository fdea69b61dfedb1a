"""Version folders: one finished index each, next to what builds left behind."""

import hashlib
import os
import shutil
from collections.abc import Collection
from pathlib import Path

from cog.index.locks import try_removal_lock
from cog.index.manifest import sync_folder
from cog.index.records import FileEntry
from cog.paths import CorpusPaths

BUILDING = ".building-"
DIGITS = 16  # of the digest, in a folder's name


def make_building_folder(corpus_paths: CorpusPaths, vectors_key: str) -> Path:
    """Make the folder a build writes to.

    :param corpus_paths: The corpus.
    :param vectors_key: What the vectors depend on, but for their chunks.
    :returns: An empty folder.
    """
    name = f"{BUILDING}{vectors_key}-{os.getpid()}-{os.urandom(4).hex()}"
    folder = corpus_paths.index / name
    folder.mkdir(parents=True)
    return folder


def find_parts(corpus_paths: CorpusPaths, vectors_key: str) -> Path | None:
    """Find what a build that did not finish has left; of several, the largest.

    :param corpus_paths: The corpus.
    :param vectors_key: What its vectors must depend on.
    :returns: Its folder; None if there is none.
    """
    folders = sorted(corpus_paths.index.glob(f"{BUILDING}{vectors_key}-*"))
    return max(folders, key=get_folder_bytes, default=None)


def place_version(building: Path, digest: str, *, into: Path) -> Path:
    """Rename a finished build to a version folder; it is not served before the manifest says so.

    :param building: The folder of the build.
    :param digest: Digest of the index.
    :param into: Where version folders lie, on the same disk.
    :returns: The version folder, named by the digest (and a number where that name is taken).
    """
    target = into / digest[:DIGITS]
    number = 1
    while target.exists():
        number += 1
        target = into / f"{digest[:DIGITS]}-{number}"
    sync_tree(building)
    os.rename(building, target)
    sync_folder(into)
    return target


def remove_leftovers(corpus_paths: CorpusPaths, *, keep: Collection[str], locks: Path) -> None:
    """Remove killed builds and versions no longer served, but for those that a reader holds.

    Only the holder of the writer lock may call this.

    :param corpus_paths: The corpus.
    :param keep: Names of folders that stay: the one that the manifest names, at least.
    :param locks: Folder of lock files.
    """
    for temporary in corpus_paths.root.glob(f".{corpus_paths.manifest.name}.*.tmp"):
        temporary.unlink(missing_ok=True)
    if not corpus_paths.index.is_dir():
        return
    for path in sorted(corpus_paths.index.iterdir()):
        if path.name in keep:
            continue
        if not path.is_dir() or path.is_symlink():
            path.unlink(missing_ok=True)
            continue
        if path.name.startswith(BUILDING):  # no reader ever opens it
            shutil.rmtree(path)
            continue
        remove_version(path, locks=locks, corpus_id=corpus_paths.root.name)


def remove_version(folder: Path, *, locks: Path, corpus_id: str) -> None:
    """Remove a version folder, unless a reader holds it.

    :param folder: The folder; it may be missing.
    :param locks: Folder of lock files.
    :param corpus_id: The corpus.
    """
    if folder.is_dir():
        with try_removal_lock(locks, corpus_id, [folder.name]) as is_free:
            if is_free:
                shutil.rmtree(folder)


def get_folder_bytes(folder: Path) -> int:
    """Size of everything below a folder.

    :param folder: The folder.
    :returns: Bytes.
    """
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def list_files(folder: Path) -> dict[str, FileEntry]:
    """Size and checksum of every file of a version folder.

    :param folder: The folder.
    :returns: Entries by relative path, in alphabetical order.
    """
    return {
        path.relative_to(folder).as_posix(): FileEntry(path.stat().st_size, hash_file(path))
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def hash_file(path: Path) -> str:
    """Checksum of a file.

    :param path: The file.
    :returns: 64 hexadecimal digits.
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync_tree(folder: Path) -> None:
    """Make every file and name below a folder survive a power cut.

    :param folder: The folder.
    """
    for path in (*sorted(folder.rglob("*")), folder):
        sync_folder(path)
