"""Pools: prefixes and an index go in, the words and phrases each may copy from come out."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cog.decoding.candidates import Phrases, find_phrases
from cog.decoding.distribution import PhraseTable
from cog.decoding.joins import needs_space
from cog.decoding.request import Request
from cog.decoding.scoring import WordScorer, make_scorer
from cog.index.records import GatheredChunks
from cog.index.union_index import AnyIndex
from cog.model.load import CogModel


@dataclass(frozen=True, slots=True)
class Pool:
    """What a prefix may copy from: the words of its retrieved chunks and the phrases they form.

    :param chunks: The gathered words.
    :param phrases: Their admissible phrases.
    :param scorer: Scores the words.
    :param first_tokens: First token of each phrase. *Shape:* ``(num_phrases,)`` int32
    :param spaceless: Phrases that begin without a space. *Shape:* ``(num_spaceless,)`` int64
    """

    chunks: GatheredChunks
    phrases: PhraseTable
    scorer: WordScorer
    first_tokens: Tensor
    spaceless: Tensor

    def score(
        self, start_scores: Tensor, end_scores: Tensor, *, phrase_bias: float, tail: bytes
    ) -> Tensor:
        """Score every phrase; those that would be glued to the word before are left out.

        :param start_scores: Start scores of all words. *Shape:* ``(num_words,)``
        :param end_scores: End scores of all words. *Shape:* ``(num_words,)``
        :param phrase_bias: Added to every phrase.
        :param tail: Last bytes of what is written.
        :returns: Minus infinity where a phrase is left out. *Shape:* ``(num_phrases,)``
        """
        scores = self.phrases.score(start_scores, end_scores, phrase_bias=phrase_bias)
        return scores.index_fill_(0, self.spaceless, -torch.inf) if needs_space(tail) else scores

    @property
    def num_bytes(self) -> int:
        """Memory of the words' vectors and of the phrases, as stored.

        :returns: Bytes.
        """
        vectors = self.chunks.start_vectors.nbytes + self.chunks.end_vectors.nbytes
        listed = self.phrases.phrases
        return vectors + listed.first.nbytes + listed.last.nbytes + listed.repeated_text.nbytes


class PoolSource:
    """Retrieves and gathers what prefixes may copy from.

    :param model: The model.
    :param index: The open index.
    :param allowed_chunks: Chunks that may be copied from; None for all. *Shape:*
        ``(num_chunks,)``
    """

    def __init__(
        self, model: CogModel, index: AnyIndex, *, allowed_chunks: NDArray[np.bool_] | None
    ) -> None:
        self.model = model
        self.index = index
        self._allowed_chunks = allowed_chunks
        token_bytes = model.splitter.token_bytes
        self._has_space = np.array([each.startswith(b" ") for each in token_bytes])

    def make_pools(self, requests: Sequence[Request]) -> tuple[list[Pool], dict[str, float]]:
        """Make the pool of every request; requests with the same prefix share theirs.

        :param requests: The requests.
        :returns: Pools in the order of the requests, and the seconds of ``retrieve`` and
            ``gather``.
        """
        keys = [(request.prefix, request.decoding.top_k_documents) for request in requests]
        distinct = list(dict.fromkeys(keys))
        began = time.perf_counter()
        found = self.search(distinct)
        retrieved = time.perf_counter()
        pools = {
            key: self.make_pool(self.gather_words(key[0], ids))
            for key, ids in zip(distinct, found, strict=True)
        }
        gathered = time.perf_counter()
        seconds = {"retrieve": retrieved - began, "gather": gathered - retrieved}
        return [pools[key] for key in keys], seconds

    def search(self, wanted: Sequence[tuple[str, int]]) -> list[NDArray[np.int64]]:
        """Find the chunks nearest to prefixes.

        :param wanted: Prefixes, and how many chunks of each.
        :returns: Chunk ids per prefix, best first.
        """
        vectors = self.model.retriever.encode_texts([prefix for prefix, _ in wanted])
        return [
            self.index.search_chunks(vector[None], top_k=top_k, allowed=self._allowed_chunks)[0]
            for vector, (_, top_k) in zip(vectors, wanted, strict=True)
        ]

    def gather(self, request: Request) -> GatheredChunks:
        """Gather the words of the chunks nearest to a prefix.

        :param request: The request.
        :returns: The gathered words.
        """
        (found,) = self.search([(request.prefix, request.decoding.top_k_documents)])
        return self.gather_words(request.prefix, found)

    def gather_words(self, _prefix: str, chunk_ids: NDArray[np.int64]) -> GatheredChunks:
        """Gather the words that may be copied.

        :param _prefix: The prefix, which adds nothing to them here.
        :param chunk_ids: The chunks found for it. *Shape:* ``(num_chunks,)``
        :returns: The gathered words.
        """
        return self.index.gather_chunks(chunk_ids)

    def find_phrases(self, chunks: GatheredChunks) -> Phrases:
        """Find the admissible phrases of gathered words.

        :param chunks: The gathered words.
        :returns: The phrases.
        """
        config = self.model.config
        return find_phrases(
            chunks, min_words=config.min_phrase_words, max_words=config.max_phrase_words
        )

    def make_pool(self, chunks: GatheredChunks) -> Pool:
        """Prepare gathered chunks for scoring.

        :param chunks: The gathered words.
        :returns: The pool.
        """
        device = self.model.prefix_encoder.device
        phrases = self.find_phrases(chunks)
        table = PhraseTable.from_phrases(phrases, device=device)
        first_tokens = chunks.token_ids[chunks.word_tokens[phrases.first, 0]]
        return Pool(
            chunks,
            table,
            make_scorer(chunks, device=device),
            torch.from_numpy(first_tokens).to(device),
            torch.from_numpy(np.flatnonzero(~self._has_space[first_tokens])).to(device),
        )
