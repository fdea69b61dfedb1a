"""Prepared fuzzed files go through builds of an index: nothing of them may be lost or changed.

A build costs the same for one file as for dozens, so documents of many files share one.
"""

import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np

from cog.corpus.report import PrepareReport
from cog.errors import IndexingError
from cog.index.building.builder import build_index
from cog.index.building.windows import NO_WORDS
from cog.index.read.reader import PhraseIndex, open_index
from cog.index.read.verify import verify_index
from cog.index.records import Manifest
from cog.index.versions.folders import Keep
from cog.model.load import IndexModel
from cog.paths import CorpusPaths
from cog.progress import SilentProgress
from cog.records import Document
from tests.index.hash_model import PARAMS, write_corpus

FILES_PER_BUILD = 250


class Builds:
    """Builds an index of the documents of some files, whenever there are enough of them.

    :param folder: Where the corpora go.
    :param model: The tiny model.
    """

    def __init__(self, folder: Path, model: IndexModel) -> None:
        self._corpus = CorpusPaths(folder / "builds" / "corpora" / "fuzzed")
        self._model = model
        self._documents: list[Document] = []
        self._skipped: Counter[str] = Counter()
        self._num_read = 0
        self._num_waiting = 0
        self.num_files = 0
        self.num_documents = 0
        self.num_words = 0

    def add(self, report: PrepareReport, documents: list[Document]) -> None:
        """Take the documents of a file; ids get its number, since files do not know each other.

        :param report: What preparing it did.
        :param documents: What came out.
        """
        self.num_files += 1
        self._documents += [
            replace(each, document_id=f"{self.num_files}/{each.document_id}") for each in documents
        ]
        self._skipped.update(report.skipped)
        self._num_read += report.num_read
        self._num_waiting += 1
        if self._num_waiting == FILES_PER_BUILD:
            self.finish()

    def finish(self) -> None:
        """Build what is left and hold it against what was read."""
        if self._documents:
            documents, read, skipped = self._documents, self._num_read, self._skipped
            self._documents, self._num_read, self._skipped = [], 0, Counter()
            self._num_waiting = 0
            self._build(documents, num_read=read, skipped=skipped)

    def _build(self, documents: list[Document], *, num_read: int, skipped: Counter[str]) -> None:
        shutil.rmtree(self._corpus.root, ignore_errors=True)
        write_corpus(self._corpus, documents, num_skipped=sum(skipped.values()))
        wanted = {each.document_id: self._split(each.text) for each in documents}
        is_empty = not any(words for words, _ in wanted.values())
        try:
            manifest = build_index(
                self._corpus,
                model_fingerprint=self._model.fingerprint,
                load_model=lambda: self._model,
                params=PARAMS,
                get_kept=lambda: Keep(frozenset(), 0),
                progress=SilentProgress(),
            ).manifest
        except IndexingError:
            if not is_empty:
                raise
            return
        self._check_counts(manifest, num_read=num_read, num_documents=len(documents))
        with open_index(self._corpus, model_fingerprint=self._model.fingerprint) as index:
            verify_index(index, progress=SilentProgress())
            self._check_words(index, documents, wanted)
        self.num_documents += manifest.documents.num_indexed
        self.num_words += manifest.num_words

    def _check_counts(self, manifest: Manifest, *, num_read: int, num_documents: int) -> None:
        counts = manifest.documents
        assert counts.num_in == num_read
        assert counts.num_in == counts.num_indexed + sum(counts.skipped.values())
        assert counts.num_indexed + counts.skipped[NO_WORDS] == num_documents

    def _check_words(
        self,
        index: PhraseIndex,
        documents: list[Document],
        wanted: dict[str, tuple[list[tuple[int, int]], int]],
    ) -> None:
        stored = index.get_documents(range(index.num_documents))
        by_id = {each.document_id: each for each in documents}
        assert all(each == by_id[each.document_id] for each in stored.values())
        found: dict[str, list[tuple[int, int]]] = {each: [] for each in wanted}
        chunks = index.gather_chunks(np.arange(index.num_chunks))
        for number, ordinal in enumerate(chunks.document_ordinals.tolist()):
            document = stored[ordinal]
            first, end = chunks.word_offsets[number : number + 2].tolist()
            for word in range(first, end):
                start, stop = chunks.word_chars[word].tolist()
                tokens = chunks.token_ids[slice(*chunks.word_tokens[word].tolist())]
                spelt = self._model.splitter.decode(tokens)
                assert spelt == document.text[start:stop].encode("utf-8"), document
                found[document.document_id].append((start, stop))
        assert found == {each: words for each, (words, _) in wanted.items()}
        assert index.parts[0].manifest.skipped_words == sum(
            too_long for _, too_long in wanted.values()
        )

    def _split(self, text: str) -> tuple[list[tuple[int, int]], int]:
        # the words of a text that fit a chunk, and the number of those that do not
        words = self._model.splitter.split(text)
        chars = words.word_chars.tolist()
        spans = list(zip(chars, chars[1:], strict=False))
        fits = np.diff(words.word_tokens) <= self._model.config.max_chunk_tokens
        kept = [span for span, is_kept in zip(spans, fits.tolist(), strict=True) if is_kept]
        return kept, int((~fits).sum())
