"""Versions of an index: a digest or a git revision goes in, where that version is comes out.

Neither torch nor a store is loaded here.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from cog.errors import CogError, IndexingError, IndexMismatchError
from cog.index.kept import find_version, iter_kept
from cog.index.manifest import load_manifest
from cog.index.recorded import (
    Recorded,
    bring_back,
    fetch_manifest,
    find_revision,
    is_cached,
    iter_recorded,
    load_recorded_manifest,
)
from cog.index.records import Manifest
from cog.index.unions import split_active
from cog.paths import CorpusPaths, ProjectPaths
from cog.registry import load_active

IN_PLACE = "in place"
KEPT = "kept"
CACHE = "dvc cache"
REMOTE = "dvc remote, if pushed"
MAX_FETCHED_MANIFESTS = 20


@dataclass(frozen=True, slots=True)
class Version:
    """A built version of a corpus.

    :param digest: Digest of its index; None if only a remote can hold its manifest.
    :param documents_digest: Digest of its documents.
    :param model: Fingerprint of the model it was built with.
    :param built_at: When, ISO 8601 in UTC; None where its format did not say.
    :param documents: Number of documents in the index.
    :param chunks: Number of chunks.
    :param words: Number of words.
    :param revision: Newest git revision whose dvc.lock names it; None if none does.
    :param committed_at: When that was committed.
    :param where: Where it is: in place, kept, in DVC's cache, or nowhere but a remote.
    :param is_active: Whether it is switched on, alone or in a union.
    """

    digest: str | None
    documents_digest: str | None
    model: str | None
    built_at: str | None
    documents: int | None
    chunks: int | None
    words: int | None
    revision: str | None
    committed_at: str | None
    where: tuple[str, ...]
    is_active: bool


def list_versions(paths: ProjectPaths, corpus_id: str) -> list[Version]:
    """List the built versions of a corpus.

    :param paths: The project.
    :param corpus_id: The corpus.
    :returns: Versions: the one in place, those kept, then those that DVC knows, newest first.
    """
    found: dict[str, Version] = {}
    for where, manifest in _iter_local(paths.corpus(corpus_id)):
        content = asdict(manifest)
        before = found.get(manifest.digest)
        places = (*(before.where if before else ()), where)
        found[manifest.digest] = _describe(content, None, where=places)
    for recorded in iter_recorded(paths, corpus_id):
        stated = load_recorded_manifest(paths, recorded)
        where = CACHE if is_cached(paths, recorded) else REMOTE
        key = str(stated.get("digest")) if stated else f"md5 {recorded.manifest_md5}"
        if key not in found:
            found[key] = _describe(stated or {}, recorded, where=(where,))
        elif where not in found[key].where:
            known = found[key]
            revision = known.revision or recorded.revision or None
            time = known.committed_at or recorded.time or None
            places = known.where if where == REMOTE else (*known.where, where)
            found[key] = replace(known, where=places, revision=revision, committed_at=time)
    active = load_active(paths)
    digest = split_active(active).get(corpus_id) if active is not None else None
    is_on = {name: digest is not None and each.digest == digest for name, each in found.items()}
    return [replace(each, is_active=is_on[name]) for name, each in found.items()]


def resolve_version(paths: ProjectPaths, corpus_id: str, name: str) -> tuple[CorpusPaths, Manifest]:
    """Find a version on this machine; else bring it back from DVC's cache or its remote.

    :param paths: The project.
    :param corpus_id: The corpus; the caller holds its versions lock.
    :param name: A digest, the beginning of one, or a git revision.
    :returns: Where it lies, and what it states.
    :raises IndexMismatchError: If there is no such version, or more than one.
    """
    corpus = paths.corpus(corpus_id)
    local = {manifest.digest for _, manifest in _iter_local(corpus)}
    digest = _match(local, name, corpus_id)
    if digest is None:
        recorded = _find_recorded(paths, corpus_id, name)
        if recorded is None:
            shown = ", ".join(sorted(each[:16] for each in local)) or "no index at all"
            raise IndexMismatchError(
                f"corpus {corpus_id} needs an index {name!r}",
                found=f"index {shown} here, and none of that name in DVC's records",
                run=f"cog corpus versions {corpus_id}",
                about=corpus_id,
            )
        stated = load_recorded_manifest(paths, recorded) or {}
        digest = str(stated.get("digest"))
        if digest not in local:
            digest = bring_back(paths, corpus_id, recorded).digest
    place = find_version(corpus, digest)
    assert place is not None
    return place, load_manifest(place)


def _iter_local(corpus: CorpusPaths) -> Iterator[tuple[str, Manifest]]:
    with contextlib.suppress(IndexingError):
        yield IN_PLACE, load_manifest(corpus)
    for _, manifest in iter_kept(corpus):
        yield KEPT, manifest


def _match(digests: set[str], name: str, corpus_id: str) -> str | None:
    found = sorted(each for each in digests if name and each.startswith(name.lower()))
    if len(found) > 1:
        raise IndexMismatchError(
            f"{name!r} must be the beginning of one digest",
            found=", ".join(each[:16] for each in found),
            run=f"cog corpus versions {corpus_id}",
            about=corpus_id,
        )
    return found[0] if found else None


def _find_recorded(paths: ProjectPaths, corpus_id: str, name: str) -> Recorded | None:
    if not name:
        return None
    by_digest: dict[str, Recorded] = {}
    elsewhere = []
    for recorded in iter_recorded(paths, corpus_id):
        stated = load_recorded_manifest(paths, recorded)
        if stated is None:
            elsewhere.append(recorded)
        else:
            by_digest.setdefault(str(stated.get("digest")), recorded)
    digest = _match(set(by_digest), name, corpus_id)
    if digest is not None:
        return by_digest[digest]
    found = find_revision(paths, corpus_id, name)
    if found is not None:
        return found
    for recorded in elsewhere[:MAX_FETCHED_MANIFESTS]:
        try:
            stated = fetch_manifest(paths, corpus_id, recorded)
        except CogError:
            continue
        if str(stated.get("digest")).startswith(name.lower()):
            return recorded
    return None


def _describe(
    stated: dict[str, Any], recorded: Recorded | None, *, where: tuple[str, ...]
) -> Version:
    documents = stated.get("documents")
    return Version(
        digest=stated.get("digest"),
        documents_digest=stated.get("documents_digest"),
        model=stated.get("model"),
        built_at=stated.get("built_at"),
        documents=documents.get("num_indexed") if isinstance(documents, dict) else None,
        chunks=stated.get("num_chunks"),
        words=stated.get("num_words"),
        revision=(recorded.revision or None) if recorded else None,
        committed_at=(recorded.time or None) if recorded else None,
        where=where,
        is_active=False,
    )
