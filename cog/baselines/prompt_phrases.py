"""CoG that copies from its prompt too: prefixes go in, texts that cite index or prompt come out.

The authors' code does this: after its first step it encodes the text so far once and adds its
phrases to the candidates. The paper does not say so. Here the prompt is encoded, before the first
step.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from cog.decoding.citations import cite_segment
from cog.decoding.generator import CopyGenerator
from cog.decoding.pool_source import PoolSource
from cog.decoding.row import Row
from cog.decoding.text import Copy
from cog.errors import IndexMismatchError
from cog.index.chunking import Chunk, chunk_document, hash_words
from cog.index.read.reader import PhraseIndex
from cog.index.records import GatheredChunks
from cog.index.tables.gather import join_chunks
from cog.index.tables.quantise import StoredVectors
from cog.model.load import CogModel
from cog.model.protocols import ChunkEncoder
from cog.model.words import BARRED
from cog.records import PROMPT, Document, Segment

PROMPT_ORDINAL = -1


class PromptPools(PoolSource):
    """Pools with the words of the prefix beside those of the retrieved chunks.

    A prompt stands where a document does, at a position that no document has.
    """

    phrase_encoder: ChunkEncoder

    def gather_words(self, prefix: str, chunk_ids: NDArray[np.int64]) -> GatheredChunks:
        """Gather the words of the chunks found for a prefix, and last those of the prefix."""
        gathered = super().gather_words(prefix, chunk_ids)
        own = self._encode(prefix)
        return gathered if own is None else join_chunks([gathered, own])

    def _encode(self, prefix: str) -> GatheredChunks | None:
        blocks = chunk_document(
            prefix,
            document_ordinal=PROMPT_ORDINAL,
            splitter=self.model.splitter,
            limits=self.model.config,
        )
        chunks = [chunk for block in blocks for chunk in block.chunks]
        if not chunks:
            return None
        encoded = self.phrase_encoder.encode_chunks(
            [chunk.text for chunk in chunks], [chunk.word_spans() for chunk in chunks]
        )
        starts, ends = self.index.store_vectors(
            np.concatenate([words.start for words in encoded]),
            np.concatenate([words.end for words in encoded]),
        )
        has_piece = np.concatenate([words.has_piece for words in encoded])
        return _lay_out(chunks, starts, ends, has_piece=has_piece)


class PromptPhrasesGenerator(CopyGenerator):
    """CoG with the prompt's own phrases, which are encoded, among the candidates."""

    pool_source = PromptPools

    def __init__(
        self,
        model: CogModel,
        index: PhraseIndex,
        *,
        phrase_encoder: ChunkEncoder,
        allowed_chunks: NDArray[np.bool_] | None = None,
    ) -> None:
        super().__init__(model, index, allowed_chunks=allowed_chunks)
        assert isinstance(self.pools, PromptPools)
        self.pools.phrase_encoder = phrase_encoder

    def _cite(self, row: Row, *, first: int = 0) -> tuple[Segment, ...]:
        ordinals = row.text.document_ordinals(first=first) - {PROMPT_ORDINAL}
        documents = self.index.get_documents(ordinals) if ordinals else {}
        parts = zip(row.text.segments[first:], row.text.copies[first:], strict=True)
        return tuple(
            self._cite_one(segment, copy, documents, prompt=row.request.prefix)
            for segment, copy in parts
        )

    def _cite_one(
        self,
        segment: Segment,
        copy: Copy | None,
        documents: Mapping[int, Document],
        *,
        prompt: str,
    ) -> Segment:
        if copy is None or copy.document_ordinal != PROMPT_ORDINAL:
            return cite_segment(segment, copy, documents, get_corpus_id=self.index.get_corpus_id)
        if prompt[segment.char_start : segment.char_end] != segment.text:
            raise IndexMismatchError(
                f"a copy of the prompt must say what it says at {segment.char_start}",
                found=repr(segment.text),
            )
        return Segment(
            segment.text,
            PROMPT,
            segment.probability,
            char_start=segment.char_start,
            char_end=segment.char_end,
        )


def _lay_out(
    chunks: Sequence[Chunk],
    starts: StoredVectors,
    ends: StoredVectors,
    *,
    has_piece: NDArray[np.bool_],
) -> GatheredChunks:
    # encoded chunks as an index would give them back
    flags = np.concatenate([chunk.word_flags for chunk in chunks])
    flags[~has_piece] |= BARRED
    bounds = [chunk.word_chars for chunk in chunks]
    texts = [(chunk.text, chunk.word_chars - chunk.word_chars[0]) for chunk in chunks]
    firsts = np.cumsum([0, *(len(chunk.token_ids) for chunk in chunks)])
    tokens = [chunk.word_tokens + n for chunk, n in zip(chunks, firsts, strict=False)]
    return GatheredChunks(
        chunk_ids=np.full(len(chunks), -1, dtype=np.int64),
        document_ordinals=np.array([chunk.document_ordinal for chunk in chunks], dtype=np.int64),
        word_offsets=np.cumsum([0, *(chunk.num_words for chunk in chunks)], dtype=np.int64),
        start_vectors=starts.vectors,
        end_vectors=ends.vectors,
        start_scales=starts.scales,
        end_scales=ends.scales,
        word_flags=flags,
        word_hashes=np.concatenate([hash_words(*each) for each in texts]),
        word_chars=np.concatenate([np.stack([b[:-1], b[1:]], axis=1) for b in bounds]),
        word_tokens=np.concatenate([np.stack([t[:-1], t[1:]], axis=1) for t in tokens]),
        token_ids=np.concatenate([chunk.token_ids for chunk in chunks]),
    )
