"""The words of a corpus: documents go in one by one, flat arrays of all their words come out."""

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cog.index.chunking import MAX_BLOCK_CHARS, iter_blocks
from cog.index.read.part import IndexPart
from cog.index.read.reader import PhraseIndex
from cog.index.tables.store import DOCUMENTS, WORDS
from cog.model.words import UNKNOWN, WordSplitter, flag_words
from cog.progress import Progress


@dataclass(frozen=True, slots=True)
class CorpusWords:
    """The words of all documents side by side; about 10 bytes a word.

    :param numbers: Number of each word: two have the same if and only if they have the same text.
        *Shape:* ``(num_words,)`` int32
    :param flags: Bits of ``cog.model.words``. *Shape:* ``(num_words,)`` uint8
    :param run_offsets: A phrase lies in one run, a document or a chunk of one: run ``i`` is words
        ``[run_offsets[i], run_offsets[i + 1])``. *Shape:* ``(num_runs + 1,)`` int64
    :param run_documents: Document of each run, ascending. *Shape:* ``(num_runs,)`` int32
    """

    num_documents: int
    numbers: NDArray[np.int32]
    flags: NDArray[np.uint8]
    run_offsets: NDArray[np.int64]
    run_documents: NDArray[np.int32]

    @property
    def num_words(self) -> int:
        """Number of words."""
        return len(self.numbers)

    def run_ends(self) -> NDArray[np.int32]:
        """For each word, one past the last word of its run."""
        return np.repeat(self.run_offsets[1:].astype(np.int32), np.diff(self.run_offsets))

    def word_documents(self) -> NDArray[np.int32]:
        """The document of each word, ascending."""
        return np.repeat(self.run_documents, np.diff(self.run_offsets))


class WordCollector:
    """Collects the words of documents."""

    def __init__(self) -> None:
        self.num_documents = 0
        self._known: dict[str, int] = {}
        self._numbers: list[NDArray[np.int32]] = []
        self._flags: list[NDArray[np.uint8] | None] = []  # None: by the words' texts
        self._run_documents: list[int] = []

    def add_document(self) -> None:
        """Begin a document."""
        self.num_documents += 1

    def add_run(
        self, text: str, *, bounds: NDArray[np.int32], flags: NDArray[np.uint8] | None
    ) -> None:
        """Take words of the last document that lie side by side.

        Their bounds are characters of its text, *shape* ``(num_words + 1,)``; flags of None are
        those of the words' texts.
        """
        known = self._known
        numbers = [
            known.setdefault(text[start:end], len(known))
            for start, end in itertools.pairwise(bounds.tolist())
        ]
        if flags is None and UNKNOWN.search(text, bounds[0], bounds[-1]):
            flags = flag_words(text[bounds[0] : bounds[-1]], bounds - bounds[0])
        self._numbers.append(np.array(numbers, dtype=np.int32))
        self._flags.append(flags)
        self._run_documents.append(self.num_documents - 1)

    def finish(self) -> CorpusWords:
        """Join what was collected; nothing may be added after it."""
        table = _flag_vocabulary(list(self._known))
        self._known = {}
        flags = [
            table[numbers] if own is None else own
            for numbers, own in zip(self._numbers, self._flags, strict=True)
        ]
        sizes = [len(numbers) for numbers in self._numbers]
        return CorpusWords(
            num_documents=self.num_documents,
            numbers=np.concatenate([np.zeros(0, dtype=np.int32), *self._numbers]),
            flags=np.concatenate([np.zeros(0, dtype=np.uint8), *flags]),
            run_offsets=np.append(0, np.cumsum(sizes, dtype=np.int64)),
            run_documents=np.array(self._run_documents, dtype=np.int32),
        )


def collect_texts(
    texts: Iterable[str], *, splitter: WordSplitter, progress: Progress
) -> CorpusWords:
    """Split the texts of documents into words; a run is a block of a document."""
    collector = WordCollector()
    for text in texts:
        collector.add_document()
        for start, end in iter_blocks(text, max_chars=MAX_BLOCK_CHARS):
            words = splitter.split(text[start:end])
            collector.add_run(text, bounds=words.word_chars + np.int32(start), flags=None)
        progress.advance(1)
    return collector.finish()


def collect_index(index: PhraseIndex, *, progress: Progress) -> CorpusWords:
    """Take the words of an index as they were indexed; run ``i`` is chunk ``i``."""
    collector = WordCollector()
    (part,) = index.parts
    chunks = _iter_chunks(part)
    chunk = next(chunks, None)
    for batch in part.iter_rows(DOCUMENTS, columns=["text"]):
        for text in batch.columns[0].to_pylist():
            collector.add_document()
            while chunk is not None and chunk[0] == collector.num_documents - 1:
                collector.add_run(text, bounds=chunk[1], flags=chunk[2])
                chunk = next(chunks, None)
            progress.advance(1)
    return collector.finish()


def _iter_chunks(
    part: IndexPart,
) -> Iterator[tuple[int, NDArray[np.int32], NDArray[np.uint8]]]:
    columns = ["document_ordinal", "word_chars", "word_flags"]
    for batch in part.iter_rows(WORDS, columns=columns):
        for ordinal, chars, flags in zip(*(c.to_pylist() for c in batch.columns), strict=True):
            yield ordinal, np.frombuffer(chars, np.int32), np.frombuffer(flags, np.uint8)


def _flag_vocabulary(words: list[str]) -> NDArray[np.uint8]:
    # with a character between the words, so that none is judged by its neighbours
    sizes = np.array([len(word) for word in words], dtype=np.int32)
    ends = np.cumsum(sizes + 1, dtype=np.int32)
    bounds = np.stack([ends - sizes - 1, ends - 1], axis=1).reshape(-1)
    return flag_words("\0".join(words), bounds)[::2].copy()
