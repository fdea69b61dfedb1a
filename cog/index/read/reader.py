"""The index that texts are written from: vectors and ids go in, chunks, words, documents come out.

It has 1 to n parts, each of one corpus; ids of chunks and documents count on from part to part.
"""

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import fields
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cog.closing import Closing
from cog.errors import IndexMismatchError
from cog.index.read.part import IndexPart
from cog.index.records import GatheredChunks
from cog.index.search.contexts import ContextBlock
from cog.index.search.filters import AllowedChunks, match_any
from cog.index.search.searcher import Neighbours, take_best
from cog.index.tables.gather import WordArrays, unpack_chunks
from cog.index.tables.store import CHUNKS, DOCUMENTS, WORDS
from cog.index.tables.word_counts import WordBits, WordCounts, join_counts
from cog.index.versions.folders import find_version
from cog.index.versions.manifest import check_index, get_index_uri, load_manifest
from cog.index.versions.unions import JOIN, DigestOf, check_fit
from cog.locks import SharedLock
from cog.model.vector_code import VectorCodes
from cog.paths import CorpusPaths
from cog.records import Document

_logger = logging.getLogger(__name__)
NUM_TAKES = 2  # LanceDB reads one take mostly on one core
MIN_SPLIT_CHUNKS = 64  # below this a second take costs more than it saves


def open_index(
    *places: CorpusPaths,
    model_fingerprint: str | None = None,
    documents_digest_of: DigestOf | None = None,
    digests: Mapping[str, str] | None = None,
) -> "PhraseIndex":
    """Open the index of one corpus or more, and keep it from being removed until it is closed.

    Without ``digests`` those in place are opened; the model and the documents are checked where
    they are named. Raises ``IndexNotBuiltError`` if there is no index, ``IndexMismatchError`` if it
    is damaged or belongs to something else.
    """
    with ExitStack() as stack:
        parts = []
        for place in places:
            part = _open_part(
                place,
                model_fingerprint=model_fingerprint,
                documents_digest=documents_digest_of(place) if documents_digest_of else None,
                digest=digests[place.root.name] if digests else None,
            )
            stack.callback(part.close)
            parts.append(part)
        index = PhraseIndex(parts)
        stack.pop_all()
    return index


def _open_part(
    corpus_paths: CorpusPaths,
    *,
    model_fingerprint: str | None,
    documents_digest: str | None,
    digest: str | None,
) -> IndexPart:
    while True:
        place = corpus_paths if digest is None else _find_place(corpus_paths, digest)
        folder = load_manifest(place).folder
        with ExitStack() as stack:  # else a build put another version in place meanwhile
            lock = _lock(corpus_paths.lock(folder))
            if lock is not None:
                stack.callback(lock.release)
            stated = load_manifest(place)
            if stated.folder != folder or digest not in (None, stated.digest):
                continue
            manifest = check_index(
                place, model_fingerprint=model_fingerprint, documents_digest=documents_digest
            )
            if manifest.folder == folder:
                tables = place.index / folder
                uri = "" if tables.is_dir() else get_index_uri(place)
                part = IndexPart(tables, manifest, lock=lock, uri=uri)
                stack.pop_all()
                return part


def _lock(path: Path) -> SharedLock | None:
    try:
        return SharedLock(path)
    except OSError as error:
        _logger.warning(
            "the index is read without a lock (%s: %s): a build may remove it meanwhile",
            path,
            error.strerror or error,
        )
        return None


def _find_place(corpus_paths: CorpusPaths, digest: str) -> CorpusPaths:
    place = find_version(corpus_paths, digest)
    if place is None:
        corpus_id = corpus_paths.root.name
        raise IndexMismatchError(
            f"corpus {corpus_id} needs the index {digest[:16]}",
            found="no such version on this machine",
            run=f"cog switch --corpus {corpus_id} --index {digest[:16]}",
        )
    return place


class PhraseIndex(Closing):
    """An open index of at least one part; parts that do not fit are an ``IndexMismatchError``."""

    def __init__(self, parts: Sequence[IndexPart]) -> None:
        self.parts = tuple(parts)
        manifests = [part.manifest for part in parts]
        check_fit(manifests)
        self.corpus = JOIN.join(each.corpus for each in manifests)
        self.digest = JOIN.join(each.digest for each in manifests)
        self.model = manifests[0].model
        self.vectors = manifests[0].vectors
        self.num_words = sum(each.num_words for each in manifests)
        self._first_chunks = np.cumsum([0, *(each.num_chunks for each in manifests)])
        self._first_documents = np.cumsum([0, *(each.documents.num_indexed for each in manifests)])
        self._pool = ThreadPoolExecutor(NUM_TAKES, thread_name_prefix="gather")

    def close(self) -> None:
        """Let go of the version folders."""
        self._pool.shutdown()
        for part in self.parts:
            part.close()

    @property
    def num_chunks(self) -> int:
        """Number of chunks."""
        return int(self._first_chunks[-1])

    @property
    def num_documents(self) -> int:
        """Number of documents."""
        return int(self._first_documents[-1])

    def search_chunks(
        self, vectors: NDArray[np.float32], *, top_k: int, allowed: AllowedChunks | None = None
    ) -> Neighbours:
        """Find the nearest chunks, by inner product; of equal ones those of the first part.

        *Shape:* ``(batch, retriever_dim)`` to ``(batch, min(top_k, num_allowed))``; another width
        is a ``ValueError``
        """
        dim = self.parts[0].manifest.search.dim
        if vectors.ndim != 2 or vectors.shape[1] != dim:
            raise ValueError(f"vectors must be (batch, {dim})")
        rows, scores = [], []
        for number, part in enumerate(self.parts):
            own = None if allowed is None else allowed.parts[number]
            found = part.searcher.search(vectors, top_k=top_k, allowed=own)
            rows.append(found.rows + self._first_chunks[number])
            scores.append(found.scores)
        return take_best(np.concatenate(rows, axis=1), np.concatenate(scores, axis=1), top_k)

    def gather_chunks(self, chunk_ids: NDArray[np.int64]) -> GatheredChunks:
        """Read the words of some chunks, in the order asked for; all parts fill one set of arrays.

        An id that is out of range or comes twice is a ``ValueError``. *Shape:* ``(num_chunks,)``
        """
        chunk_ids = np.asarray(chunk_ids, dtype=np.int64)
        order = np.argsort(chunk_ids, kind="stable")  # tables are read by ascending id
        places = self._locate(chunk_ids[order], self._first_chunks, "chunk ids")
        if len(np.unique(chunk_ids)) != len(chunk_ids):
            raise ValueError("chunk ids must differ")
        takes = []
        for number in np.unique(places).tolist():
            own = order[places == number]
            num_takes = NUM_TAKES if len(own) >= MIN_SPLIT_CHUNKS else 1
            takes += [(number, slots) for slots in np.array_split(own, num_takes)]
        rows = list(self._pool.map(lambda take: self._take_words(chunk_ids, *take), takes))
        # rows say how long they are, so that nothing of every chunk has to be held
        arrays = WordArrays.allocate(
            chunk_ids, zip(rows, (slots for _, slots in takes), strict=True), vectors=self.vectors
        )
        list(self._pool.map(lambda part: self._fill(arrays, *part), zip(rows, takes, strict=True)))
        codes = self._codes
        return arrays.gathered if codes is None else unpack_chunks(arrays.gathered, codes)

    def count_licences(self) -> Counter[str]:
        """Number of documents by licence."""
        counts: Counter[str] = Counter()
        for part in self.parts:
            counts.update(part.count_licences())
        return counts

    def allow(self, licences: Collection[str], *, excluded: Iterable[int] = ()) -> AllowedChunks:
        """Let only chunks be found of documents with one of the licences that are not excluded."""
        documents = np.unique(np.array(list(excluded), dtype=np.int64))
        numbers = self._locate(documents, self._first_documents, "document ordinals")
        filters = [
            part.allow(licences, documents[numbers == number] - self._first_documents[number])
            for number, part in enumerate(self.parts)
        ]
        return AllowedChunks(self._first_chunks, tuple(filters))

    def get_word_bits(self, word_hashes: NDArray[np.uint64]) -> NDArray[np.float32]:
        """The information of words: -log2 of the share of a word's form in the index.

        Words that differ in case and leading space only have one form; a word that is not in the
        index counts as one that stands there once. *Shape:* ``(num_words,)``
        """
        return self._word_bits.get(word_hashes)

    def load_word_counts(self) -> WordCounts:
        """Read how often each word stands in the index."""
        return join_counts([part.load_word_counts() for part in self.parts])

    def get_documents(self, ordinals: Iterable[int]) -> dict[int, Document]:
        """Read a few documents, by their positions in the index."""
        wanted = np.unique(np.array(list(ordinals), dtype=np.int64))
        places = self._locate(wanted, self._first_documents, "document ordinals")
        names = [field.name for field in fields(Document)]
        documents = {}
        for number in np.unique(places).tolist():
            positions = wanted[places == number]
            rows = self.parts[number].take(DOCUMENTS, positions - self._first_documents[number])
            for ordinal, row in zip(positions.tolist(), rows.to_pylist(), strict=True):
                documents[ordinal] = Document(**{name: row[name] for name in names})
        return documents

    def find_document(self, document_id: str) -> Document | None:
        """Find a document by its id; of several parts that have it, in the first."""
        ordinals = self.find_documents([document_id])[document_id]
        return self.get_documents(ordinals[:1])[ordinals[0]] if ordinals else None

    def find_documents(self, document_ids: Collection[str]) -> dict[str, list[int]]:
        """Find the positions of documents in the index; one may stand in several parts."""
        condition = match_any("document_id", document_ids)
        ordinals: dict[str, list[int]] = {each: [] for each in document_ids}
        for part, first in zip(self.parts, self._first_documents.tolist(), strict=False):
            rows = part.find_rows(DOCUMENTS, condition, columns=["document_id", "ordinal"])
            for row in rows.to_pylist():
                ordinals[row["document_id"]].append(first + row["ordinal"])
        return ordinals

    def get_corpus_id(self, ordinal: int) -> str:
        """The corpus of the document at a position in the index."""
        place = self._locate(np.array([ordinal]), self._first_documents, "document ordinals")
        return self.parts[int(place[0])].manifest.corpus

    def chunk_documents(self) -> NDArray[np.int64]:
        """The document of every chunk, as a position. *Shape:* ``(num_chunks,)``."""
        documents = [
            batch.column(0).to_numpy() + first
            for part, first in zip(self.parts, self._first_documents, strict=False)
            for batch in part.iter_rows(CHUNKS, columns=["document_ordinal"])
        ]
        return np.concatenate([np.zeros(0, dtype=np.int64), *documents])

    @cached_property
    def _codes(self) -> VectorCodes | None:
        return self.parts[0].load_codes() if self.vectors.codes else None

    @cached_property
    def contexts(self) -> list[ContextBlock]:
        """What the last tokens of a text are looked up in."""
        return [block for part in self.parts for block in part.load_contexts()]

    @cached_property
    def _word_bits(self) -> WordBits:
        return WordBits(self.load_word_counts())

    def _take_words(
        self, chunk_ids: NDArray[np.int64], number: int, slots: NDArray[np.int64]
    ) -> pa.Table:
        return self.parts[number].take(WORDS, chunk_ids[slots] - self._first_chunks[number])

    def _fill(
        self, arrays: WordArrays, rows: pa.Table, take: tuple[int, NDArray[np.int64]]
    ) -> None:
        number, slots = take
        try:
            arrays.fill(
                rows,
                slots,
                first_chunk=int(self._first_chunks[number]),
                first_document=int(self._first_documents[number]),
            )
        except ValueError as error:
            raise self.parts[number].refuse("words that fit its chunks", str(error)) from error

    @staticmethod
    def _locate(
        positions: NDArray[np.int64], firsts: NDArray[np.int64], what: str
    ) -> NDArray[np.int64]:
        # the part that each position lies in
        if len(positions) and not 0 <= positions.min() <= positions.max() < firsts[-1]:
            raise ValueError(f"{what} must be in [0, {firsts[-1]})")
        return np.searchsorted(firsts, positions, side="right") - 1
