"""Differences: two versions of a corpus go in; what was added, removed and changed comes out."""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, fields
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cog.corpus.documents import DocumentStore
from cog.errors import IndexMismatchError
from cog.index.chunking import chunk_document, hash_content
from cog.index.read.reader import PhraseIndex, open_index
from cog.index.tables.digest import get_hash_heads
from cog.index.tables.store import CHUNKS, DOCUMENTS
from cog.index.versions.activation import get_kept
from cog.index.versions.folders import find_version, hold_versions_lock, prune_versions
from cog.index.versions.manifest import find_manifest, load_manifest
from cog.index.versions.resolve import hold_versions
from cog.index.versions.unions import split_active
from cog.locks import Say
from cog.model.config import ModelConfig, load_config
from cog.model.fingerprint import fingerprint_model
from cog.model.words import WordSplitter
from cog.params import Params
from cog.paths import ProjectPaths
from cog.records import Document
from cog.registry import load_active

PREPARED = "prepared"
FIELDS = [each.name for each in fields(Document)]


@dataclass(frozen=True, slots=True)
class CorpusDiff:
    """What differs between two versions of a corpus."""

    corpus: str
    before: str | None  # digest of the earlier index; None if there is none
    after: str  # digest of the later index, or of the prepared documents
    is_prepared: bool  # whether the later version is the prepared documents
    added: list[str]  # ids of documents that are only in the later version
    removed: list[str]  # ids of documents that are only in the earlier one
    changed: list[str]  # ids of documents of which a field differs
    num_same: int  # documents that are the same
    words: tuple[int, int]  # number of white-space separated words before and after
    licences: dict[str, tuple[int, int]]  # number of documents by licence, before and after
    num_chunks: int  # chunks of the later version
    num_encoded: int  # its chunks that must be encoded, the earlier one being there
    reason: str  # why every chunk must be encoded; empty if that is not so


@dataclass(slots=True)
class _Tally:
    # what is known of one version: a digest of every document, counts, heads of chunk hashes
    digests: dict[str, bytes] = field(default_factory=dict)
    num_words: int = 0
    licences: Counter[str] = field(default_factory=Counter)
    heads: NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, dtype=np.uint64))
    num_chunks: int = 0


def compare_versions(
    paths: ProjectPaths,
    corpus_id: str,
    *,
    params: Params,
    before: str | None = None,
    after: str | None = None,
    say: Say | None = None,
) -> CorpusDiff:
    """Compare two versions of a corpus, each named by a digest or a git revision.

    Without names: the active version, else the one in place, with the prepared documents.
    """
    if before == PREPARED:
        raise IndexMismatchError(
            "the earlier version must be an index", found=before, run=f"cog corpus diff {corpus_id}"
        )
    with ExitStack() as stack:
        earlier = before or _find_default(paths, corpus_id)
        first = _open(paths, corpus_id, earlier, stack, say=say) if earlier else None
        is_prepared = after is None or after == PREPARED
        second = None if is_prepared else _open(paths, corpus_id, str(after), stack, say=say)
        reason = _find_reason(paths, params, first, second)
        old = _tally_index(first) if first else _Tally()
        if second is not None:
            new = _tally_index(second)
            digest = second.digest
        else:
            store = DocumentStore(paths.corpus(corpus_id).documents)
            digest = store.load_report().digest
            new = _tally_documents(paths, params, store, old, is_all=bool(reason))
    with hold_versions_lock(paths.corpus(corpus_id), say=say):
        prune_versions(paths.corpus(corpus_id), get_kept(paths, corpus_id))
    name = first.digest if first else None
    return _compare(
        old, new, names=(corpus_id, name, digest), reason=reason, is_prepared=is_prepared
    )


def _compare(
    old: _Tally, new: _Tally, *, names: tuple[str, str | None, str], reason: str, is_prepared: bool
) -> CorpusDiff:
    is_new = np.ones(len(new.heads), bool) if reason else ~np.isin(new.heads, old.heads)
    common = old.digests.keys() & new.digests.keys()
    changed = sorted(each for each in common if old.digests[each] != new.digests[each])
    return CorpusDiff(
        corpus=names[0],
        before=names[1],
        after=names[2],
        is_prepared=is_prepared,
        added=sorted(new.digests.keys() - common),
        removed=sorted(old.digests.keys() - common),
        changed=changed,
        num_same=len(common) - len(changed),
        words=(old.num_words, new.num_words),
        licences={
            name: (old.licences[name], new.licences[name])
            for name in sorted(old.licences | new.licences)
        },
        num_chunks=new.num_chunks,
        num_encoded=len(np.unique(new.heads[is_new])),
        reason=reason,
    )


def _find_default(paths: ProjectPaths, corpus_id: str) -> str | None:
    active = load_active(paths)
    corpus = paths.corpus(corpus_id)
    digest = split_active(active).get(corpus_id) if active is not None else None
    if digest is not None and find_version(corpus, digest):
        return digest
    manifest = find_manifest(corpus)
    return None if manifest is None else manifest.digest


def _open(
    paths: ProjectPaths, corpus_id: str, name: str, stack: ExitStack, *, say: Say | None
) -> PhraseIndex:
    with hold_versions(paths, {corpus_id: name}, say=say) as (place,):
        digests = {corpus_id: load_manifest(place).digest}
        index = open_index(paths.corpus(corpus_id), digests=digests)
        return stack.enter_context(index)


def _find_reason(
    paths: ProjectPaths, params: Params, first: PhraseIndex | None, second: PhraseIndex | None
) -> str:
    if first is None:
        return "there is no index"
    model = fingerprint_model(paths.model(params.model))
    dtype = params.index.vector_dtype
    if second is not None:
        model, dtype = second.model, second.vectors.dtype
    if first.model != model:
        return f"the index is of model {first.model[:16]}, not {model[:16]}"
    if first.vectors.dtype != dtype:
        return f"the index stores {first.vectors.dtype}, not {dtype}"
    return ""


def _tally_index(index: PhraseIndex) -> _Tally:
    (part,) = index.parts
    tally = _Tally(num_chunks=index.num_chunks)
    for batch in part.iter_rows(DOCUMENTS, columns=FIELDS):
        for row in batch.to_pylist():
            _add(tally, row)
    tally.heads = get_hash_heads(part.iter_rows(CHUNKS, columns=["content_hash"]))
    return tally


def _tally_documents(
    paths: ProjectPaths, params: Params, store: DocumentStore, old: _Tally, *, is_all: bool
) -> _Tally:
    from cog.model.load import load_splitter

    folder = paths.model(params.model)
    splitter, limits = load_splitter(folder), load_config(folder)
    tally = _Tally()
    heads: list[int] = []
    for document in store.iter_documents():
        digest = _add(tally, {name: getattr(document, name) for name in FIELDS})
        hashes = list(_iter_heads(document.text, splitter, limits))
        tally.num_chunks += len(hashes)
        if is_all or old.digests.get(document.document_id) != digest:
            heads += hashes
    tally.heads = np.array(heads, dtype=np.uint64)
    return tally


def _iter_heads(text: str, splitter: WordSplitter, limits: ModelConfig) -> Iterator[int]:
    for block in chunk_document(text, document_ordinal=0, splitter=splitter, limits=limits):
        for chunk in block.chunks:
            yield int.from_bytes(hash_content(chunk.text, chunk.word_chars)[:8], "little")


def _add(tally: _Tally, row: dict[str, Any]) -> bytes:
    hashed = blake2b(digest_size=16)
    for name in FIELDS:
        value = str(row[name]).encode("utf-8", "surrogatepass")
        hashed.update(len(value).to_bytes(8, "little") + value)
    tally.digests[row["document_id"]] = hashed.digest()
    tally.num_words += len(row["text"].split())
    tally.licences[row["licence"]] += 1
    return hashed.digest()
