"""Versions of an index: the one in place, those kept beside it, and what builds left behind.

The one in place lies in ``index/<digest>/``, in what DVC tracks. One that is replaced while it is
switched on, or may be again, or is one of the last few, stays in ``versions/<digest>/``, as its
corpus lies. Neither torch nor a store is loaded here.
"""

import contextlib
import os
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

from cog.atomic import (
    KEPT,
    STAGING,
    clear_leftovers,
    copy_linked,
    discard,
    replacing,
    sync_folder,
    sync_tree,
)
from cog.errors import CogError, IndexingError
from cog.hashing import hash_file
from cog.index.records import FileEntry, Manifest
from cog.index.versions.manifest import (
    check_index,
    find_manifest,
    get_index_uri,
    load_manifest,
    save_manifest,
)
from cog.locks import Say, hold_lock, make_lock, try_locks
from cog.paths import BUILD, VERSIONS, CorpusPaths

TABLES = "tables"  # of a build that goes on, in its hidden folder
DIGITS = 16  # of the digest, in a folder's name


@dataclass(frozen=True, slots=True)
class Keep:
    """Which versions of a corpus stay when they are replaced."""

    digests: frozenset[str]  # those that are switched on, or that a rollback goes back to
    num_last: int  # how many of the others, those that were built last


def hold_build_lock(corpus: CorpusPaths, *, say: Say | None) -> AbstractContextManager[None]:
    """Be the only process that builds the index of a corpus."""
    return hold_lock(corpus.lock(BUILD), work=f"builds {corpus.root.name}", say=say)


def hold_versions_lock(corpus: CorpusPaths, *, say: Say | None) -> AbstractContextManager[None]:
    """Be the only process that puts versions in place or removes them; for moments only."""
    work = f"changes the versions of {corpus.root.name}"
    return hold_lock(corpus.lock(VERSIONS), work=work, say=say)


@contextmanager
def hold_writing(corpus: CorpusPaths, *, say: Say | None) -> Iterator[None]:
    """Be the only process that builds a corpus, switches to it, or removes versions of it."""
    with hold_build_lock(corpus, say=say), hold_versions_lock(corpus, say=say):
        yield


def find_parts(corpus_paths: CorpusPaths, vectors_key: str) -> Path | None:
    """Find the tables of a build of a vectors key that did not finish; of several, the largest."""
    folders = sorted(corpus_paths.index.glob(f".{vectors_key}{KEPT}*/{TABLES}"))
    return max(folders, key=get_folder_bytes, default=None)


def place_version(building: Path, digest: str, *, into: Path) -> Path:
    """Rename a finished build to a version folder; it is not served before the manifest says so.

    It is named by the digest, and a number where that name is taken; ``into`` is on the same disk.
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


def remove_leftovers(corpus_paths: CorpusPaths, *, keep: Collection[str]) -> None:
    """Remove killed builds and versions no longer served, but for those that a reader holds.

    Only the holder of the build lock may call this; the folder that the manifest names is among
    those to keep.
    """
    clear_leftovers(corpus_paths.root)
    if not corpus_paths.index.is_dir():
        return
    clear_leftovers(corpus_paths.index)
    for path in sorted(corpus_paths.index.iterdir()):
        if path.name in keep or STAGING.fullmatch(path.name):  # what is left of these is in work
            continue
        if not path.is_dir() or path.is_symlink():
            path.unlink(missing_ok=True)
        elif path.name.startswith("."):  # of a build; no reader ever opens it
            shutil.rmtree(path)
        else:
            remove_version(corpus_paths, path)


def remove_version(corpus_paths: CorpusPaths, folder: Path) -> None:
    """Remove a version folder, if there is one and no reader holds it."""
    if folder.is_dir():
        with try_locks(corpus_paths.lock(folder.name)) as is_free:
            if is_free:
                discard(folder)


def iter_kept(corpus_paths: CorpusPaths) -> Iterator[tuple[CorpusPaths, Manifest]]:
    """Read the manifests of kept versions, the last built first; unreadable ones are left out."""
    found = []
    for folder in sorted(corpus_paths.versions.glob("[!.]*")):
        place = corpus_paths.version(folder.name)
        with contextlib.suppress(IndexingError, OSError):
            manifest = load_manifest(place)
            time = place.manifest.stat().st_mtime_ns
            if folder.name == manifest.digest[:DIGITS]:  # under another name none would be found
                found.append((manifest.built_at, time, place, manifest))
    for _, _, place, manifest in sorted(found, key=itemgetter(0, 1), reverse=True):
        yield place, manifest


def find_version(corpus_paths: CorpusPaths, digest: str) -> CorpusPaths | None:
    """Find where a version of an index lies on this machine."""
    for place in (corpus_paths, corpus_paths.version(digest[:DIGITS])):
        manifest = find_manifest(place)
        if manifest is not None and manifest.digest == digest:
            return place
    return None


def find_whole(place: CorpusPaths, digest: str) -> Manifest | None:
    """Find an index in a place, if it is the one of a digest, with all of its tables."""
    try:
        found = check_index(place)
    except CogError:
        return None
    return found if found.digest == digest and (place.index / found.folder).is_dir() else None


def keep_version(corpus_paths: CorpusPaths, keep: Keep | None, *, successor: str) -> None:
    """Keep the index that is about to be replaced, if it is to stay; needs the versions lock."""
    manifest = find_manifest(corpus_paths)
    if manifest is None:
        return
    source = corpus_paths.index / manifest.folder
    is_needed = keep is None or keep.num_last > 0 or manifest.digest in keep.digests
    is_there = source.is_dir() or bool(get_index_uri(corpus_paths))
    if is_needed and manifest.digest != successor and is_there:
        add_version(corpus_paths, manifest, source)


def serve_version(
    corpus_paths: CorpusPaths,
    manifest: Manifest,
    get_kept: Callable[[], Keep | None],
    *,
    say: Say | None,
) -> None:
    """Put a version in the place of the one before; only the holder of the build lock may."""
    with hold_versions_lock(corpus_paths, say=say):
        keep = get_kept()
        keep_version(corpus_paths, keep, successor=manifest.digest)
        make_lock(corpus_paths.lock(manifest.folder))
        save_manifest(corpus_paths.manifest, manifest)
        prune_versions(corpus_paths, keep)
    remove_leftovers(corpus_paths, keep=[manifest.folder])


def add_version(corpus_paths: CorpusPaths, manifest: Manifest, source: Path) -> None:
    """Put a version beside the corpus's own, unless a whole copy is there.

    The caller holds the versions lock. Files are linked, not copied, where the disk can: they are
    never written to again. Where ``source`` is no folder, the tables lie in an object store.
    """
    target = corpus_paths.version(manifest.digest[:DIGITS])
    if find_whole(target, manifest.digest) is not None:
        return  # a reader may have it open, and a manifest alone would be less
    with replacing(target.root.parent) as folder:
        new = CorpusPaths(folder / corpus_paths.root.name)
        new.index.mkdir(parents=True)
        if source.is_dir():
            copy_linked(source, new.index / manifest.folder)
        save_manifest(new.manifest, manifest)


def find_unneeded(corpus_paths: CorpusPaths, keep: Keep) -> list[Path]:
    """Find kept versions that nothing needs any more."""
    digests = [manifest.digest for _, manifest in iter_kept(corpus_paths)]
    others = [digest for digest in digests if digest not in keep.digests]
    names = {digest[:DIGITS] for digest in (*keep.digests, *others[: keep.num_last])}
    return sorted(p for p in corpus_paths.versions.glob("[!.]*") if p.name not in names)


def prune_versions(corpus_paths: CorpusPaths, keep: Keep | None) -> None:
    """Remove kept versions that nobody needs or reads (None: all stay); needs the versions lock."""
    if keep is None:
        return
    clear_leftovers(corpus_paths.versions)
    for path in find_unneeded(corpus_paths, keep):
        with try_locks(*list_reader_locks(corpus_paths, path)) as is_free:
            if is_free:
                discard(path)


def list_reader_locks(corpus_paths: CorpusPaths, kept: Path) -> list[Path]:
    """List the locks that readers of a kept version hold."""
    folders = corpus_paths.version(kept.name).index.glob("*")
    return [corpus_paths.lock(each.name) for each in folders]


def get_folder_bytes(folder: Path) -> int:
    """Size of everything below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def list_files(folder: Path) -> dict[str, FileEntry]:
    """Size and checksum of every file of a version folder, by relative path in order."""
    return {
        path.relative_to(folder).as_posix(): FileEntry(path.stat().st_size, hash_file(path))
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
