"""Names of versions: a digest or a git revision goes in, where that version lies comes out.

Here is known both what lies on this machine (``folders``) and what DVC has (``recorded``). Neither
torch nor a store is loaded.
"""

import contextlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

from cog.atomic import open_staging
from cog.errors import CogError, IndexingError, IndexMismatchError
from cog.index.records import Manifest
from cog.index.versions.folders import (
    add_version,
    find_version,
    hold_versions_lock,
    iter_kept,
    list_files,
)
from cog.index.versions.manifest import check_index, load_manifest
from cog.index.versions.recorded import (
    Recorded,
    copy_cached,
    fetch_manifest,
    fetch_version,
    find_revision,
    is_cached,
    iter_recorded,
    load_recorded_manifest,
)
from cog.index.versions.unions import split_active
from cog.locks import Say, make_lock
from cog.paths import CorpusPaths, ProjectPaths
from cog.registry import load_active

IN_PLACE = "in place"
KEPT = "kept"
CACHE = "dvc cache"
REMOTE = "dvc remote, if pushed"
MAX_FETCHED_MANIFESTS = 20


@dataclass(frozen=True, slots=True)
class Version:
    """A built version of a corpus."""

    digest: str | None  # digest of its index; None if only a remote can hold its manifest
    documents_digest: str | None  # digest of its documents
    model: str | None  # fingerprint of the model it was built with
    built_at: str | None  # when, ISO 8601 in UTC; None where its format did not say
    documents: int | None  # number of documents in the index
    chunks: int | None  # number of chunks
    words: int | None  # number of words
    revision: str | None  # newest git revision whose dvc.lock names it; None if none does
    committed_at: str | None  # when that was committed
    where: tuple[str, ...]  # where it is: in place, kept, in DVC's cache, or nowhere but a remote
    is_active: bool  # whether it is switched on, alone or in a union


def list_versions(paths: ProjectPaths, corpus_id: str) -> list[Version]:
    """List the built versions of a corpus: in place, kept, then those of DVC, newest first."""
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


@contextmanager
def hold_versions(
    paths: ProjectPaths, names: Mapping[str, str | None], *, say: Say | None
) -> Iterator[list[CorpusPaths]]:
    """Keep the versions of corpora as they are while the block runs, one of each on this machine.

    A version is named by a digest, the beginning of one, or a git revision; None for the one in
    place, built or not. One that is not here is brought back from DVC's cache or its remote, before
    anything is held: nobody waits for a download. Yields where they lie, in the order of the names.
    """
    while True:
        digests = {
            part: None if name is None else _ensure_version(paths, part, name, say=say)
            for part, name in names.items()
        }
        with ExitStack() as stack:
            for part in sorted(names):  # always in one order, so that two never wait for each other
                stack.enter_context(hold_versions_lock(paths.corpus(part), say=say))
            places = [
                paths.corpus(part) if digest is None else find_version(paths.corpus(part), digest)
                for part, digest in digests.items()
            ]
            found = [place for place in places if place is not None]
            if len(found) == len(places):
                yield found
                return
        # another process removed one before it was held: what nothing needs goes with every switch


def _ensure_version(paths: ProjectPaths, corpus_id: str, name: str, *, say: Say | None) -> str:
    # the digest of a version that is on this machine now
    local = {manifest.digest for _, manifest in _iter_local(paths.corpus(corpus_id))}
    digest = _match(local, name, corpus_id)
    if digest is not None:
        return digest
    recorded = _find_recorded(paths, corpus_id, name)
    if recorded is None:
        shown = ", ".join(sorted(each[:16] for each in local))
        here = f"index {shown} here" if shown else "no index here"
        found = f"{here}, and none of that name in DVC's records"
        raise _refuse(corpus_id, f"corpus {corpus_id} needs an index {name!r}", found)
    digest = str((load_recorded_manifest(paths, recorded) or {}).get("digest"))
    return digest if digest in local else _bring_back(paths, corpus_id, recorded, say=say)


def _bring_back(paths: ProjectPaths, corpus_id: str, version: Recorded, *, say: Say | None) -> str:
    # from DVC's cache, or its remote; its files are checked against what it states
    corpus = paths.corpus(corpus_id)
    if not is_cached(paths, version):
        if say is not None:
            say(f"fetching an older index of {corpus_id} from DVC's remote")
        fetch_version(paths, corpus_id, version)
    with open_staging(corpus.versions / "cached") as staging:
        place = CorpusPaths(staging / corpus_id)
        copy_cached(paths, version, place)
        manifest = check_index(place)
        source = place.index / manifest.folder
        if list_files(source) != manifest.files:
            wanted = (
                f"DVC's cache needs index {manifest.digest[:16]} of {corpus_id} as it was built"
            )
            raise _refuse(corpus_id, wanted, "other files than its manifest states")
        with hold_versions_lock(corpus, say=say):
            add_version(corpus, manifest, source)
            make_lock(corpus.lock(manifest.folder))
    return manifest.digest


def _iter_local(corpus: CorpusPaths) -> Iterator[tuple[str, Manifest]]:
    with contextlib.suppress(IndexingError):
        yield IN_PLACE, load_manifest(corpus)
    for _, manifest in iter_kept(corpus):
        yield KEPT, manifest


def _match(digests: set[str], name: str, corpus_id: str) -> str | None:
    found = sorted(each for each in digests if name and each.startswith(name.lower()))
    if len(found) > 1:
        shown = ", ".join(each[:16] for each in found)
        raise _refuse(corpus_id, f"{name!r} must be the beginning of one digest", shown)
    return found[0] if found else None


def _refuse(corpus_id: str, wanted: str, found: str) -> IndexMismatchError:
    return IndexMismatchError(wanted, found=found, run=f"cog corpus versions {corpus_id}")


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
