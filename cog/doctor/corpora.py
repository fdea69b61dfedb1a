"""Checks of one corpus: an id goes in, what is wrong comes out; nothing is written."""

import shlex
from collections.abc import Iterator

from cog.atomic import find_leftovers
from cog.cards import is_corpus_id
from cog.corpus.documents import DocumentStore, find_documents_digest
from cog.corpus.dvc_cache import find_revision
from cog.corpus.manage import check_corpus
from cog.corpus.next_step import name_rebuild
from cog.doctor.records import Finding, from_error
from cog.errors import CogError, IndexNotBuiltError
from cog.index.read.part import IndexPart
from cog.index.read.reader import PhraseIndex
from cog.index.read.verify import verify_index
from cog.index.records import Manifest
from cog.index.versions.activation import get_kept
from cog.index.versions.folders import find_unneeded, iter_kept, list_reader_locks
from cog.index.versions.manifest import check_index, get_index_uri, load_manifest
from cog.locks import find_holder, is_locked
from cog.params import Params
from cog.paths import BUILD, CorpusPaths, ProjectPaths
from cog.pipeline_file import UPGRADE
from cog.progress import Progress
from cog.registry import iter_corpus_ids, load_card


def check_files(paths: ProjectPaths, corpus_id: str) -> Iterator[Finding]:
    """Check card, entry, raw files and documents of a corpus."""
    card = paths.card(corpus_id).relative_to(paths.root)
    runs = {
        "card": f"git checkout HEAD {card}, or edit it, then cog corpus validate {corpus_id}",
        "pipeline": UPGRADE,
        "raw": f"cog corpus fetch {corpus_id}",
        "source": name_rebuild(corpus_id),
        "documents": f"cog corpus prepare {corpus_id}",
    }
    known = set(iter_corpus_ids(paths))
    for found in check_corpus(paths, corpus_id):
        owner = found.detail.partition(".yaml")[0]
        if found.check == "card" and owner in known and owner != corpus_id:
            continue  # of the card that this one extends; found there
        if not found.is_ok:
            problem = found.detail.split("; next: ")[0]
            yield Finding(found.check, corpus_id, problem, runs[found.check])
    documents = paths.corpus(corpus_id).documents
    if documents.is_file():
        try:
            report = DocumentStore(documents).load_report()
        except CogError:
            return  # found above
        if report.num_read != report.num_documents + sum(report.skipped.values()):
            problem = "documents read are not those kept plus those skipped"
            yield Finding("counts", corpus_id, problem, runs["documents"])


def check_corpus_index(
    paths: ProjectPaths,
    corpus_id: str,
    *,
    params: Params,
    fingerprint: str | None,
    progress: Progress,
    is_quick: bool,
) -> Iterator[Finding]:
    """Check the index of a corpus, if it has one.

    Quickly: rows and bytes are left unread. Without a fingerprint the model cannot be read.
    """
    corpus = paths.corpus(corpus_id)
    try:
        manifest = load_manifest(corpus)
    except IndexNotBuiltError:
        return
    except CogError as error:
        yield from_error("index", corpus_id, error)
        return
    yield from _check_counts(manifest, params)
    while True:
        try:
            _check_tables(corpus, manifest, fingerprint, progress=progress, is_quick=is_quick)
        except CogError as error:
            newer = _find_newer(corpus, manifest)
            if newer is not None:  # a build has put it in place, and removed what was read
                manifest = newer
                continue
            yield from_error("index", corpus_id, error)
        break
    for place, kept in iter_kept(corpus):
        try:
            check_index(place)
        except CogError as error:
            run = f"cog switch --corpus {corpus_id} --index {kept.digest[:16]}"
            name = place.root.parent.relative_to(paths.root).as_posix()
            yield from_error("index", corpus_id, error, run=f"rm -r {name}, then {run}")


def check_leftovers(paths: ProjectPaths, corpus_id: str) -> Iterator[Finding]:
    """Find what killed processes left in the folder of a corpus."""
    corpus = paths.corpus(corpus_id)
    if find_holder(corpus.lock(BUILD)) is not None:
        return  # what lies there belongs to a build that runs
    try:
        served = {load_manifest(corpus).folder}
    except CogError:
        served = set()
    strays = [path for path in sorted(corpus.index.glob("*")) if path.name not in served]
    keep = get_kept(paths, corpus_id)
    unneeded = find_unneeded(corpus, keep) if keep is not None else []
    for path in unneeded:
        if not any(map(is_locked, list_reader_locks(corpus, path))):
            strays.append(path)
    strays += find_leftovers(corpus.versions)
    for path in strays if served else ():
        name = path.relative_to(paths.root)
        yield Finding("orphan", str(name), "nothing uses it", f"cog index build {corpus_id}")
    for path in find_leftovers(corpus.root):
        name = path.relative_to(paths.root)
        yield Finding("orphan", str(name), "nothing uses it", shlex.join(("rm", "-r", str(name))))


def find_strays(paths: ProjectPaths) -> Iterator[Finding]:
    """Find folders of corpora without a card."""
    for folder in sorted(paths.corpora.glob("*/")):
        parts = folder.name.split("+")
        if not folder.name.startswith(".") and not all(_has_card(paths, part) for part in parts):
            name = folder.relative_to(paths.root)
            revision = find_revision(paths, paths.card(folder.name))
            problem, run = "no card has this id", f"cog corpus remove {folder.name}"
            if revision:
                problem = f"no card has this id, but one of git revision {revision} has"
            if revision or not is_corpus_id(folder.name):
                run = shlex.join(("rm", "-r", str(name)))
            yield Finding("orphan", str(name), problem, run)


def _check_tables(
    corpus: CorpusPaths,
    manifest: Manifest,
    fingerprint: str | None,
    *,
    progress: Progress,
    is_quick: bool,
) -> None:
    check_index(corpus, model_fingerprint=fingerprint, documents_digest=_read_digest(corpus))
    if not is_quick:
        folder = corpus.index / manifest.folder
        uri = "" if folder.is_dir() else get_index_uri(corpus)
        part = IndexPart(folder, manifest, uri=uri)  # no lock: that would be written
        with PhraseIndex([part]) as index:
            verify_index(index, progress=progress)


def _find_newer(corpus: CorpusPaths, manifest: Manifest) -> Manifest | None:
    try:
        found = load_manifest(corpus)
    except CogError:
        return None
    return found if found != manifest else None


def _check_counts(manifest: Manifest, params: Params) -> Iterator[Finding]:
    corpus_id, counts = manifest.corpus, manifest.documents
    run = f"cog index build {corpus_id} --force"
    if counts.num_in != counts.num_indexed + sum(counts.skipped.values()):
        problem = (
            f"the manifest counts {counts.num_in} documents in, {counts.num_indexed} indexed "
            f"and {sum(counts.skipped.values())} skipped"
        )
        yield Finding("counts", corpus_id, problem, run)
    if manifest.search.recall < params.index.min_recall:
        problem = (
            f"search finds {manifest.search.recall:.3f} of the best {manifest.search.recall_at} "
            f"chunks, index.min_recall is {params.index.min_recall}"
        )
        yield Finding("recall", corpus_id, problem, run)


def _read_digest(corpus: CorpusPaths) -> str | None:
    try:
        return find_documents_digest(corpus)
    except CogError:
        return None  # found by check_files


def _has_card(paths: ProjectPaths, corpus_id: str) -> bool:
    try:
        return load_card(paths, corpus_id).id == corpus_id
    except CogError:
        return paths.card(corpus_id).is_file()  # a broken card is another finding
