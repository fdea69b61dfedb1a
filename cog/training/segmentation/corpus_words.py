"""The words of a corpus: documents go in one by one, flat arrays of all their words come out."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cog.index.chunking import MAX_BLOCK_CHARS, Splitter, iter_blocks
from cog.index.reader import PhraseIndex
from cog.index.store import DOCUMENTS, WORDS
from cog.model.words import UNKNOWN, flag_words
from cog.progress import Progress
from cog.training.segmentation.records import char_to_byte

NUM_COLUMNS = 4  # first and last character, first and last byte


@dataclass(frozen=True, slots=True)
class CorpusWords:
    """The words of all documents side by side; about 30 bytes a word.

    :param document_ids: Ids of the documents.
    :param texts: The documents' texts, UTF-8, joined.
    :param text_offsets: Where each document's text begins in ``texts``, and the end of the last.
        *Shape:* ``(num_documents + 1,)`` int64
    :param numbers: Number of each word: two have the same if and only if they have the same text.
        *Shape:* ``(num_words,)`` int32
    :param flags: Bits of ``cog.model.words``. *Shape:* ``(num_words,)`` uint8
    :param places: First character and one past the last, first byte and one past the last, of each
        word in its document. *Shape:* ``(num_words, 4)`` int32
    :param run_offsets: A phrase lies in one run, a document or a chunk of one: run ``i`` is words
        ``[run_offsets[i], run_offsets[i + 1])``. *Shape:* ``(num_runs + 1,)`` int64
    :param run_documents: Document of each run, ascending. *Shape:* ``(num_runs,)`` int32
    """

    document_ids: list[str]
    texts: bytes
    text_offsets: NDArray[np.int64]
    numbers: NDArray[np.int32]
    flags: NDArray[np.uint8]
    places: NDArray[np.int32]
    run_offsets: NDArray[np.int64]
    run_documents: NDArray[np.int32]

    @property
    def num_words(self) -> int:
        """Number of words.

        :returns: The count.
        """
        return len(self.numbers)

    @property
    def num_documents(self) -> int:
        """Number of documents, those without words included.

        :returns: The count.
        """
        return len(self.document_ids)

    def run_ends(self) -> NDArray[np.int32]:
        """For each word, one past the last word of its run.

        :returns: Word numbers. *Shape:* ``(num_words,)``
        """
        return np.repeat(self.run_offsets[1:].astype(np.int32), np.diff(self.run_offsets))

    def word_documents(self) -> NDArray[np.int32]:
        """The document of each word.

        :returns: Document numbers, ascending. *Shape:* ``(num_words,)``
        """
        return np.repeat(self.run_documents, np.diff(self.run_offsets))


class WordCollector:
    """Collects the words of documents."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}
        self._document_ids: list[str] = []
        self._texts: list[bytes] = []
        self._numbers: list[NDArray[np.int32]] = []
        self._flags: list[NDArray[np.uint8] | None] = []  # None: by the words' texts
        self._places: list[NDArray[np.int32]] = []
        self._run_documents: list[int] = []

    def add_document(self, document_id: str, text: str) -> None:
        """Begin a document.

        :param document_id: Its id.
        :param text: Its text.
        """
        self._document_ids.append(document_id)
        self._texts.append(text.encode("utf-8"))

    def add_run(
        self,
        text: str,
        *,
        bounds: NDArray[np.int32],
        flags: NDArray[np.uint8] | None,
    ) -> None:
        """Take words of the last document that lie side by side.

        :param text: The document's text.
        :param bounds: Bounds of the words in characters. *Shape:* ``(num_words + 1,)``
        :param flags: Bits of the words; None for those of their texts. *Shape:* ``(num_words,)``
        """
        known, ends = self._known, bounds.tolist()
        numbers = [
            known.setdefault(text[start:end], len(known))
            for start, end in zip(ends, ends[1:], strict=False)
        ]
        if flags is None and UNKNOWN.search(text, ends[0], ends[-1]):
            flags = flag_words(text[ends[0] : ends[-1]], bounds - bounds[0])
        in_bytes = char_to_byte(self._texts[-1], bounds)
        self._numbers.append(np.array(numbers, dtype=np.int32))
        self._flags.append(flags)
        self._places.append(np.stack([bounds[:-1], bounds[1:], in_bytes[:-1], in_bytes[1:]], 1))
        self._run_documents.append(len(self._document_ids) - 1)

    def finish(self) -> CorpusWords:
        """Join what was collected; nothing may be added after it.

        :returns: The words.
        """
        table = _flag_vocabulary(list(self._known))
        self._known = {}
        flags = [
            table[numbers] if given is None else given
            for numbers, given in zip(self._numbers, self._flags, strict=True)
        ]
        sizes = [len(text) for text in self._texts]
        runs = [len(numbers) for numbers in self._numbers]
        return CorpusWords(
            document_ids=self._document_ids,
            texts=_join(self._texts),
            text_offsets=np.append(0, np.cumsum(sizes, dtype=np.int64)),
            numbers=_concatenate(self._numbers, np.zeros(0, dtype=np.int32)),
            flags=_concatenate(flags, np.zeros(0, dtype=np.uint8)),
            places=_concatenate(self._places, np.zeros((0, NUM_COLUMNS), dtype=np.int32)),
            run_offsets=np.append(0, np.cumsum(runs, dtype=np.int64)),
            run_documents=np.array(self._run_documents, dtype=np.int32),
        )


def collect_texts(
    texts: Iterable[tuple[str, str]], *, splitter: Splitter, progress: Progress
) -> CorpusWords:
    """Split documents into words; a run is a document.

    :param texts: Id and text of each document.
    :param splitter: Splits text into words.
    :param progress: Told of documents that are split.
    :returns: The words.
    """
    collector = WordCollector()
    for document_id, text in texts:
        collector.add_document(document_id, text)
        for start, end in iter_blocks(text, max_chars=MAX_BLOCK_CHARS):
            words = splitter.split(text[start:end])
            collector.add_run(text, bounds=words.word_chars + np.int32(start), flags=None)
        progress.advance(1)
    return collector.finish()


def collect_index(index: PhraseIndex, *, progress: Progress) -> CorpusWords:
    """Take the words of an index as they were indexed; a run is a chunk.

    :param index: The index.
    :param progress: Told of documents that are read.
    :returns: The words; run ``i`` is chunk ``i``.
    """
    collector = WordCollector()
    chunks = _iter_chunks(index)
    chunk = next(chunks, None)
    for ordinal, (document_id, text) in enumerate(_iter_texts(index)):
        collector.add_document(document_id, text)
        while chunk is not None and chunk[0] == ordinal:
            collector.add_run(text, bounds=chunk[1], flags=chunk[2])
            chunk = next(chunks, None)
        progress.advance(1)
    return collector.finish()


def _iter_texts(index: PhraseIndex) -> Iterator[tuple[str, str]]:
    for batch in index.iter_rows(DOCUMENTS, columns=["document_id", "text"]):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _iter_chunks(
    index: PhraseIndex,
) -> Iterator[tuple[int, NDArray[np.int32], NDArray[np.uint8]]]:
    columns = ["document_ordinal", "word_chars", "word_flags"]
    for batch in index.iter_rows(WORDS, columns=columns):
        for ordinal, chars, flags in zip(*(c.to_pylist() for c in batch.columns), strict=True):
            yield ordinal, np.frombuffer(chars, np.int32), np.frombuffer(flags, np.uint8)


def _flag_vocabulary(words: list[str]) -> NDArray[np.uint8]:
    # with a character between the words, so that none is judged by its neighbours
    sizes = np.array([len(word) for word in words], dtype=np.int32)
    ends = np.cumsum(sizes + 1, dtype=np.int32)
    bounds = np.stack([ends - sizes - 1, ends - 1], axis=1).reshape(-1)
    return flag_words("\0".join(words), bounds)[::2].copy()


def _join(texts: list[bytes]) -> bytes:
    joined = b"".join(texts)
    texts.clear()
    return joined


def _concatenate(parts: list[NDArray[Any]], empty: NDArray[Any]) -> NDArray[Any]:
    # the parts are let go, so that memory holds them only once more
    joined = np.concatenate([empty, *parts])
    parts.clear()
    return joined
