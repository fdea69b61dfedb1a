"""Kept versions: an index that is replaced while it is switched on stays beside the new one.

They lie outside what DVC tracks, in ``versions/<digest>/``, each as its corpus lies. Neither torch
nor a store is loaded here.
"""

import os
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path

from cog.errors import IndexingError
from cog.index.locks import try_removal_lock
from cog.index.manifest import load_manifest, save_manifest, sync_folder
from cog.index.records import Manifest
from cog.index.versions import DIGITS, sync_tree
from cog.paths import CorpusPaths

HIDDEN = ".new-"


def iter_kept(corpus_paths: CorpusPaths) -> Iterator[tuple[CorpusPaths, Manifest]]:
    """Read the manifests of kept versions; those that cannot be read are passed over.

    :param corpus_paths: The corpus.
    :yields: Where a version lies, and what it states.
    """
    for folder in sorted(corpus_paths.versions.glob("[!.]*")):
        place = corpus_paths.version(folder.name)
        try:
            yield place, load_manifest(place)
        except IndexingError:
            continue


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


def keep_version(corpus_paths: CorpusPaths, digests: Collection[str]) -> None:
    """Keep the index that is about to be replaced, if it is one of those to keep.

    Files are linked, not copied, where the disk can: they are never written to again.

    :param corpus_paths: The corpus; the caller holds its versions lock.
    :param digests: Digests of versions to keep.
    """
    try:
        manifest = load_manifest(corpus_paths)
    except IndexingError:
        return
    source = corpus_paths.index / manifest.folder
    if manifest.digest in digests and source.is_dir():
        add_version(corpus_paths, manifest, source)


def add_version(corpus_paths: CorpusPaths, manifest: Manifest, source: Path) -> CorpusPaths:
    """Put a version beside the corpus's own, atomically.

    :param corpus_paths: The corpus; the caller holds its versions lock.
    :param manifest: What the version states.
    :param source: Its folder of tables.
    :returns: Where it lies.
    """
    target = corpus_paths.version(manifest.digest[:DIGITS])
    hidden = corpus_paths.version(f"{HIDDEN}{os.getpid()}-{os.urandom(4).hex()}")
    try:
        (hidden.index).mkdir(parents=True)
        shutil.copytree(source, hidden.index / manifest.folder, copy_function=_link)
        save_manifest(hidden.manifest, manifest)
        sync_tree(hidden.root.parent)
        if target.root.parent.exists():  # of the same digest, or damaged
            shutil.rmtree(target.root.parent)
        os.rename(hidden.root.parent, target.root.parent)
        sync_folder(corpus_paths.versions)
    except BaseException:
        shutil.rmtree(hidden.root.parent, ignore_errors=True)
        raise
    return target


def prune_versions(corpus_paths: CorpusPaths, digests: Collection[str], *, locks: Path) -> None:
    """Remove kept versions that are neither switched on nor what a rollback goes back to.

    :param corpus_paths: The corpus; the caller holds its versions lock.
    :param digests: Digests of versions that stay.
    :param locks: Folder of lock files; what a reader holds stays too.
    """
    if not corpus_paths.versions.is_dir():
        return
    names = {digest[:DIGITS] for digest in digests}
    for path in sorted(corpus_paths.versions.iterdir()):
        if path.name in names:
            continue
        folders = [each.name for each in corpus_paths.version(path.name).index.glob("*")]
        with try_removal_lock(locks, corpus_paths.root.name, folders) as is_free:
            if is_free:
                shutil.rmtree(path, ignore_errors=True)


def _link(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
    return target
