"""Kept versions: an index that is replaced while it is needed stays beside the new one.

Needed is what is switched on, what a rollback goes back to, and the last few of the others. They
lie outside what DVC tracks, in ``versions/<digest>/``, each as its corpus lies. Neither torch nor a
store is loaded here.
"""

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

from cog.errors import CogError, IndexingError
from cog.index.locks import try_removal_lock
from cog.index.manifest import check_index, get_index_uri, load_manifest, save_manifest, sync_folder
from cog.index.records import Manifest
from cog.index.versions import DIGITS, sync_tree
from cog.paths import CorpusPaths

HIDDEN = ".new-"
HIDDEN_GONE = ".gone-"


@dataclass(frozen=True, slots=True)
class Keep:
    """Which versions of a corpus stay when they are replaced.

    :param digests: Those that are switched on, or that a rollback goes back to.
    :param num_last: How many of the others, those that were built last.
    """

    digests: frozenset[str]
    num_last: int


def iter_kept(corpus_paths: CorpusPaths) -> Iterator[tuple[CorpusPaths, Manifest]]:
    """Read the manifests of kept versions; those that cannot be read are passed over.

    :param corpus_paths: The corpus.
    :yields: Where a version lies, and what it states, those that were built last first.
    """
    found = []
    for folder in sorted(corpus_paths.versions.glob("[!.]*")):
        place = corpus_paths.version(folder.name)
        with contextlib.suppress(IndexingError, OSError):
            manifest = load_manifest(place)
            found.append((manifest.built_at, place.manifest.stat().st_mtime_ns, place, manifest))
    for _, _, place, manifest in sorted(found, key=itemgetter(0, 1), reverse=True):
        yield place, manifest


def find_version(corpus_paths: CorpusPaths, digest: str) -> CorpusPaths | None:
    """Find where a version of an index lies on this machine.

    :param corpus_paths: The corpus.
    :param digest: Digest of the index.
    :returns: Paths at which it can be opened; None if it is not here.
    """
    for place in (corpus_paths, corpus_paths.version(digest[:DIGITS])):
        try:
            if load_manifest(place).digest == digest:
                return place
        except IndexingError:
            continue
    return None


def keep_version(corpus_paths: CorpusPaths, keep: Keep | None, *, successor: str) -> None:
    """Keep the index that is about to be replaced, if it is one of those to keep.

    Files are linked, not copied, where the disk can: they are never written to again.

    :param corpus_paths: The corpus; the caller holds its versions lock.
    :param keep: Which versions stay; None for all.
    :param successor: Digest of the index that replaces it.
    """
    try:
        manifest = load_manifest(corpus_paths)
    except IndexingError:
        return
    source = corpus_paths.index / manifest.folder
    is_needed = keep is None or keep.num_last > 0 or manifest.digest in keep.digests
    is_there = source.is_dir() or bool(get_index_uri(corpus_paths))
    if is_needed and manifest.digest != successor and is_there:
        add_version(corpus_paths, manifest, source)


def add_version(corpus_paths: CorpusPaths, manifest: Manifest, source: Path) -> CorpusPaths:
    """Put a version beside the corpus's own, atomically.

    :param corpus_paths: The corpus; the caller holds its versions lock.
    :param manifest: What the version states.
    :param source: Its folder of tables; where there is none they lie in an object store.
    :returns: Where it lies.
    """
    target = corpus_paths.version(manifest.digest[:DIGITS])
    if source.is_dir() and _is_whole(target, manifest.digest):
        return target  # a reader may have it open
    hidden = corpus_paths.version(f"{HIDDEN}{os.getpid()}-{os.urandom(4).hex()}")
    try:
        (hidden.index).mkdir(parents=True)
        if source.is_dir():
            shutil.copytree(source, hidden.index / manifest.folder, copy_function=_link)
        save_manifest(hidden.manifest, manifest)
        sync_tree(hidden.root.parent)
        if target.root.parent.exists():  # damaged
            shutil.rmtree(target.root.parent)
        os.rename(hidden.root.parent, target.root.parent)
        sync_folder(corpus_paths.versions)
    except BaseException:
        shutil.rmtree(hidden.root.parent, ignore_errors=True)
        raise
    return target


def find_unneeded(corpus_paths: CorpusPaths, keep: Keep) -> list[Path]:
    """Find kept versions that nothing needs any more, and what killed processes left beside them.

    :param corpus_paths: The corpus.
    :param keep: Which versions stay.
    :returns: Folders in alphabetical order.
    """
    if not corpus_paths.versions.is_dir():
        return []
    digests = [manifest.digest for _, manifest in iter_kept(corpus_paths)]
    others = [digest for digest in digests if digest not in keep.digests]
    names = {digest[:DIGITS] for digest in (*keep.digests, *others[: keep.num_last])}
    return [path for path in sorted(corpus_paths.versions.iterdir()) if path.name not in names]


def prune_versions(corpus_paths: CorpusPaths, keep: Keep | None, *, locks: Path) -> None:
    """Remove kept versions that nothing needs any more.

    :param corpus_paths: The corpus; the caller holds its versions lock.
    :param keep: Which versions stay; None for all.
    :param locks: Folder of lock files; what a reader holds stays too.
    """
    for path in find_unneeded(corpus_paths, keep) if keep is not None else ():
        folders = [each.name for each in corpus_paths.version(path.name).index.glob("*")]
        with try_removal_lock(locks, corpus_paths.root.name, folders) as is_free:
            if is_free:  # moved away first: a version that is half gone must not look like one
                gone = path.with_name(f"{HIDDEN_GONE}{os.getpid()}-{os.urandom(4).hex()}")
                path.rename(gone)
                shutil.rmtree(gone, ignore_errors=True)


def _is_whole(place: CorpusPaths, digest: str) -> bool:
    try:
        found = check_index(place, model_fingerprint=None, documents_digest=None)
    except CogError:
        return False
    return found.digest == digest and (place.index / found.folder).is_dir()


def _link(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
    return target
