"""A part of an index, open for reading: a version folder goes in; rows and files come out."""

from collections import Counter
from collections.abc import Collection, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cog.errors import CheckpointError
from cog.index.records import FLAT, Manifest
from cog.index.search.contexts import CONTEXTS, ContextBlock, load_blocks
from cog.index.search.filters import PartFilter, make_condition
from cog.index.search.searcher import FlatSearcher, ListSearcher, Searcher
from cog.index.tables.store import CHUNKS, DOCUMENT, DOCUMENTS, LICENCE, WORDS, StoreReader
from cog.index.tables.word_counts import WORD_COUNTS, WordCounts, load_counts
from cog.locks import SharedLock
from cog.model.vector_code import VECTOR_CODES, VectorCodes, load_codes

UNREADABLE = (OSError, ValueError, EOFError)  # what NumPy raises for a damaged file


class IndexPart(StoreReader):
    """What is stored of one corpus; ids of chunks and documents are those of its tables.

    The lock keeps the version folder from being removed. Tables that are not what the manifest says
    are an ``IndexMismatchError``.
    """

    def __init__(
        self, folder: Path, manifest: Manifest, *, lock: SharedLock | None = None, uri: str = ""
    ) -> None:
        super().__init__(folder, manifest.corpus, uri=uri)
        self.folder = folder
        self.manifest = manifest
        self._lock = lock
        for table, wanted in (
            (DOCUMENTS, manifest.documents.num_indexed),
            (CHUNKS, manifest.num_chunks),
            (WORDS, manifest.num_chunks),
        ):
            num_rows = self.count_rows(table)
            if num_rows != wanted:
                raise self.refuse(f"{wanted} rows of {table}", f"{num_rows} rows")

    def close(self) -> None:
        """Let go of the version folder."""
        if self._lock is not None:
            self._lock.release()

    @cached_property
    def searcher(self) -> Searcher:
        """What chunks are searched with."""
        quality = self.manifest.search
        if quality.kind == FLAT:
            return FlatSearcher(self.iter_vectors(), quality.dim)
        num_rows = self.count_listed()
        if num_rows != quality.num_rows:  # what is in no list would be looked at row by row
            raise self.refuse(f"lists of {quality.num_rows} chunks", f"{num_rows} in lists")
        return ListSearcher(self.find_nearest, quality)

    def count_licences(self) -> dict[str, int]:
        """Number of documents by licence; what is searched on disk has it counted."""
        if self.manifest.search.kind == FLAT:
            return dict(Counter(self.iter_values(DOCUMENTS, LICENCE)))
        return self.manifest.search.licences

    def allow(self, licences: Collection[str], excluded: NDArray[np.int64]) -> PartFilter:
        """Let only chunks be found of documents with one of the licences, but for some of them."""
        if self.manifest.search.kind == FLAT:
            values = [each in licences for each in self.iter_values(DOCUMENTS, LICENCE)]
            is_admitted = np.array(values, dtype=bool)
            is_admitted[excluded] = False
            mask = is_admitted[np.fromiter(self.iter_values(CHUNKS, DOCUMENT), np.int64)]
            return PartFilter(int(mask.sum()), admits=mask.__getitem__)

        def admits(chunk_ids: NDArray[np.int64]) -> NDArray[np.bool_]:
            unique, places = np.unique(chunk_ids, return_inverse=True)
            rows = self.take(CHUNKS, unique, columns=[LICENCE, DOCUMENT])
            is_licensed = [each in licences for each in rows.column(LICENCE).to_pylist()]
            is_excluded = np.isin(rows.column(DOCUMENT).to_numpy(), excluded)
            return (np.array(is_licensed, dtype=bool) & ~is_excluded)[places]

        condition = make_condition(licences, excluded)
        return PartFilter(self.count_matches(CHUNKS, condition), admits, condition)

    def load_contexts(self) -> list[ContextBlock]:
        """Open what tokens are looked up in."""
        try:
            blocks = load_blocks(self._get_folder(CONTEXTS))
        except UNREADABLE as error:
            raise self.refuse("readable contexts", str(error)) from error
        num_chunks = sum(len(block.chunk_starts) for block in blocks)
        if num_chunks != self.manifest.num_chunks:
            wanted = f"contexts of {self.manifest.num_chunks} chunks"
            raise self.refuse(wanted, f"{num_chunks} chunks")
        return blocks

    def load_codes(self) -> VectorCodes:
        """Read what the bits of its vectors mean."""
        wanted = self.manifest.vectors.codes
        try:
            codes = load_codes(self._get_folder(VECTOR_CODES))
        except CheckpointError as error:
            raise self.refuse("readable codes of vectors", error.found) from error
        if codes.digest() != wanted:
            raise self.refuse(f"codes of vectors {wanted}", codes.digest())
        return codes

    def load_word_counts(self) -> WordCounts:
        """Read how often each word stands in it."""
        try:
            counts = load_counts(self._get_folder(WORD_COUNTS))
        except UNREADABLE as error:
            raise self.refuse("readable word counts", str(error)) from error
        if counts.num_words != self.manifest.num_words:
            wanted = f"counts of {self.manifest.num_words} words"
            raise self.refuse(wanted, f"{counts.num_words} words")
        return counts

    def iter_vectors(self) -> Iterator[NDArray[np.float32]]:
        """Stream the chunks' vectors in blocks of *Shape:* ``(num_rows, retriever_dim)``."""
        for batch in self.iter_rows(CHUNKS, columns=["vector"]):
            vectors = batch.column(0).flatten().to_numpy().astype(np.float32, copy=False)
            yield vectors.reshape(-1, self.manifest.search.dim)

    def iter_values(self, table: str, column: str) -> Iterator[Any]:
        """Stream one column of a table."""
        for batch in self.iter_rows(table, columns=[column]):
            yield from batch.column(0).to_pylist()

    def _get_folder(self, start: str) -> Path:
        # where files lie that are no tables
        if not self.is_remote:
            return self.folder
        from cog.index.versions.remote import fetch_files

        return fetch_files(self.manifest, self._uri, start)
