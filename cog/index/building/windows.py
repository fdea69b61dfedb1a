"""Windows: documents stream in, bounded groups of documents and chunks come out, and counts."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from cog.index.chunking import Chunk, chunk_document
from cog.model.config import ModelConfig
from cog.model.words import WordSplitter
from cog.records import Document

NO_WORDS = "no-words"  # documents without a word that fits a chunk


@dataclass(frozen=True, slots=True)
class Window:
    """Documents and chunks that are encoded and written together."""

    first_ordinal: int  # position of the first document in the index
    documents: list[Document]  # documents whose first chunk is in this window
    first_chunk_id: int  # id of the first chunk
    chunks: list[Chunk]  # chunks, in order


@dataclass(slots=True)
class WindowReader:
    """Cuts documents into windows, and counts."""

    splitter: WordSplitter
    limits: ModelConfig
    max_chunks: int  # number of chunks of a window
    num_documents: int = 0  # documents with a chunk so far
    num_chunks: int = 0  # chunks so far
    # number of documents left out so far, by reason
    skipped: dict[str, int] = field(default_factory=lambda: {NO_WORDS: 0})
    skipped_words: int = 0  # number of words longer than a chunk so far

    def iter_windows(self, documents: Iterable[Document]) -> Iterator[Window]:
        """Cut documents into windows of ``max_chunks`` chunks; the last may have fewer."""
        window = Window(0, [], 0, [])
        for document in documents:
            is_indexed = False
            for chunk in self._iter_chunks(document):
                if not is_indexed:
                    window.documents.append(document)
                    self.num_documents += 1
                    is_indexed = True
                window.chunks.append(chunk)
                self.num_chunks += 1
                if len(window.chunks) == self.max_chunks:
                    yield window
                    window = Window(self.num_documents, [], self.num_chunks, [])
            if not is_indexed:
                self.skipped[NO_WORDS] += 1
        if window.chunks:
            yield window

    def _iter_chunks(self, document: Document) -> Iterator[Chunk]:
        blocks = chunk_document(
            document.text,
            document_ordinal=self.num_documents,
            splitter=self.splitter,
            limits=self.limits,
        )
        for block in blocks:
            self.skipped_words += block.skipped_words
            yield from block.chunks
