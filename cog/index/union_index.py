"""Several indexes searched as one: ids of chunks and documents count on from part to part.

Nothing is copied: a search asks every part and merges what they find by score, a gather reads each
chunk where it lies.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cog.index.chunk_search import ChunkSearch
from cog.index.contexts import Contexts
from cog.index.reader import PhraseIndex, open_index
from cog.index.records import GatheredChunks, Manifest
from cog.index.searcher import Neighbours
from cog.index.unions import DigestOf, join_manifests, split_union
from cog.index.word_counts import WordCounts, join_counts
from cog.paths import ProjectPaths
from cog.records import Document


class UnionIndex(ChunkSearch):
    """The indexes of several corpora as one; it has the verbs of a :class:`PhraseIndex`.

    :param parts: Open indexes of one model.
    """

    def __init__(self, parts: Sequence[PhraseIndex]) -> None:
        self.parts = tuple(parts)
        self.manifest: Manifest = join_manifests([part.manifest for part in parts])
        num_documents = [part.manifest.documents.num_indexed for part in parts]
        self._first_chunks = _cumulate([part.num_chunks for part in parts])
        self._first_documents = _cumulate(num_documents)

    @property
    def dim(self) -> int:
        """Width of a start vector, and of an end vector.

        :returns: The width.
        """
        return self.parts[0].dim

    @property
    def num_chunks(self) -> int:
        """Number of chunks of all parts.

        :returns: The count.
        """
        return self.manifest.num_chunks

    def search_neighbours(
        self,
        vectors: NDArray[np.float32],
        *,
        top_k: int,
        allowed: NDArray[np.bool_] | None = None,
    ) -> Neighbours:
        """Find the nearest chunks, with their scores.

        :param vectors: *Shape:* ``(batch, retriever_dim)``
        :param top_k: Number of chunks per vector.
        :param allowed: Chunks that may be found; None for all. *Shape:* ``(num_chunks,)``
        :returns: Chunk ids and inner products, best first.
        """
        rows, scores = [], []
        for number, part in enumerate(self.parts):
            first, end = self._first_chunks[number], self._first_chunks[number + 1]
            chosen = None if allowed is None else np.ascontiguousarray(allowed[first:end])
            found = part.search_neighbours(vectors, top_k=top_k, allowed=chosen)
            rows.append(found.rows + first)
            scores.append(found.scores)
        return _merge(np.concatenate(rows, axis=1), np.concatenate(scores, axis=1), top_k)

    def load_contexts(self) -> Contexts:
        """Open what tokens are looked up in.

        :returns: The contexts of all parts; chunks count on.
        """
        return Contexts([block for part in self.parts for block in part.load_contexts().blocks])

    def load_word_counts(self) -> WordCounts:
        """Read how often each word stands in the parts.

        :returns: The counts, added up.
        """
        return join_counts([part.load_word_counts() for part in self.parts])

    def gather_chunks(self, chunk_ids: NDArray[np.int64]) -> GatheredChunks:
        """Read the words of some chunks.

        :param chunk_ids: Chunks, each once, in any order. *Shape:* ``(num_chunks,)``
        :returns: Their words, in the order asked for; document ordinals count on, too.
        """
        chunk_ids = self.check_chunk_ids(chunk_ids)
        places = self._place(chunk_ids, self._first_chunks)
        gathered, order = [], []
        for number, part in enumerate(self.parts):
            slots = np.flatnonzero(places == number)
            words = part.gather_chunks(chunk_ids[slots] - self._first_chunks[number])
            gathered.append(
                replace(
                    words,
                    chunk_ids=chunk_ids[slots],
                    document_ordinals=words.document_ordinals + self._first_documents[number],
                )
            )
            order.append(slots)
        return reorder_chunks(join_chunks(gathered), np.argsort(np.concatenate(order)))

    def get_documents(self, ordinals: Iterable[int]) -> dict[int, Document]:
        """Read a few documents.

        :param ordinals: Positions in the union.
        :returns: Documents by position.
        """
        wanted = np.unique(np.array(list(ordinals), dtype=np.int64))
        places = self._place(wanted, self._first_documents)
        documents: dict[int, Document] = {}
        for number in np.unique(places).tolist():
            first = int(self._first_documents[number])
            found = self.parts[number].get_documents((wanted[places == number] - first).tolist())
            documents |= {ordinal + first: document for ordinal, document in found.items()}
        return documents

    def get_corpus_id(self, ordinal: int) -> str:
        """The corpus that a document belongs to.

        :param ordinal: Position of the document in the union.
        :returns: The corpus id.
        """
        place = int(self._place(np.array([ordinal]), self._first_documents)[0])
        return self.parts[place].manifest.corpus

    def document_licences(self) -> list[str]:
        """The licence of every document.

        :returns: Licences by position in the union.
        """
        return [licence for part in self.parts for licence in part.document_licences()]

    def document_ids(self) -> list[str]:
        """The id of every document.

        :returns: Ids by position in the union; one may stand in several parts.
        """
        return [document_id for part in self.parts for document_id in part.document_ids()]

    def chunk_documents(self) -> NDArray[np.int64]:
        """The document of every chunk.

        :returns: Positions in the union, by chunk. *Shape:* ``(num_chunks,)``
        """
        pairs = zip(self.parts, self._first_documents, strict=False)
        return np.concatenate([part.chunk_documents() + first for part, first in pairs])

    @staticmethod
    def _place(positions: NDArray[np.int64], firsts: NDArray[np.int64]) -> NDArray[np.int64]:
        if len(positions) and not 0 <= positions.min() <= positions.max() < firsts[-1]:
            raise ValueError(f"positions must be in [0, {firsts[-1]})")
        return np.searchsorted(firsts, positions, side="right") - 1


AnyIndex = PhraseIndex | UnionIndex


@contextmanager
def open_indexes(
    paths: ProjectPaths,
    corpus_id: str,
    *,
    model_fingerprint: str | None,
    documents_digest_of: DigestOf | None,
    digests: Mapping[str, str] | None = None,
) -> Iterator[AnyIndex]:
    """Open the index of a corpus, or those of a union as one, for as long as the block runs.

    :param paths: The project.
    :param corpus_id: A corpus id, or several joined with ``+``.
    :param model_fingerprint: The model they must have been built with; None for any.
    :param documents_digest_of: Tells the documents each must have been built from; None for any.
    :param digests: The version of each to open, by corpus id; None for those in place.
    :yields: The index.
    """
    locks: Path = paths.locks
    with ExitStack() as stack:
        parts = []
        for part in split_union(corpus_id):
            corpus_paths = paths.corpus(part)
            opened = open_index(
                corpus_paths,
                locks=locks,
                corpus_id=part,
                model_fingerprint=model_fingerprint,
                documents_digest=documents_digest_of(corpus_paths) if documents_digest_of else None,
                digest=digests[part] if digests else None,
            )
            parts.append(stack.enter_context(opened))
        yield parts[0] if len(parts) == 1 else UnionIndex(parts)


def _cumulate(counts: Sequence[int]) -> NDArray[np.int64]:
    return np.cumsum([0, *counts], dtype=np.int64)


def _merge(rows: NDArray[np.int64], scores: NDArray[np.float32], top_k: int) -> Neighbours:
    # of equal scores the part named first comes first, as in one index of all
    best = np.argsort(-scores, axis=1, kind="stable")[:, :top_k]
    return Neighbours(
        np.take_along_axis(rows, best, axis=1), np.take_along_axis(scores, best, axis=1)
    )


def join_chunks(parts: Sequence[GatheredChunks]) -> GatheredChunks:
    """Put gathered chunks one behind another.

    :param parts: The parts, at least one, of one storage format.
    :returns: All their chunks.
    """
    values = {
        field.name: np.concatenate([getattr(part, field.name) for part in parts])
        for field in fields(GatheredChunks)
        if field.name not in ("word_offsets", "word_tokens")
    }
    num_tokens = _cumulate([len(part.token_ids) for part in parts])
    tokens = [part.word_tokens + n for part, n in zip(parts, num_tokens, strict=False)]
    counts = np.concatenate([np.diff(part.word_offsets) for part in parts])
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    return GatheredChunks(**values, word_offsets=offsets, word_tokens=np.concatenate(tokens))


def reorder_chunks(chunks: GatheredChunks, order: NDArray[np.int64]) -> GatheredChunks:
    """Put gathered chunks in another order; words and tokens follow each other as they do.

    :param chunks: The chunks.
    :param order: Their positions in the new order. *Shape:* ``(num_chunks,)``
    :returns: The same chunks.
    """
    if np.array_equal(order, np.arange(len(order))):
        return chunks
    counts = np.diff(chunks.word_offsets)[order]
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    words = np.arange(offsets[-1]) + np.repeat(chunks.word_offsets[order] - offsets[:-1], counts)
    by_chunk = ("chunk_ids", "document_ordinals")
    values = {
        field.name: getattr(chunks, field.name)[order if field.name in by_chunk else words]
        for field in fields(GatheredChunks)
        if field.name not in ("word_offsets", "token_ids")
    }
    # tokens move with their words
    old = values["word_tokens"]
    num_tokens = old[:, 1] - old[:, 0]
    ends = np.cumsum(num_tokens)
    starts = ends - num_tokens
    tokens = np.arange(num_tokens.sum()) + np.repeat(old[:, 0] - starts, num_tokens)
    values["word_tokens"] = np.stack([starts, ends], axis=1)
    return GatheredChunks(**values, word_offsets=offsets, token_ids=chunks.token_ids[tokens])
