"""Ablations of a few lines: settings, the vocabulary, and the sum over occurrences."""

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cog.baselines.ablations.catalogue import Ablation
from cog.decoding.candidates import PhraseList, Phrases, list_phrases
from cog.decoding.distribution import NextChoice, PhraseTable
from cog.decoding.generator import CopyGenerator
from cog.decoding.pool import PoolSource
from cog.decoding.request import Request
from cog.index.records import GatheredChunks
from cog.index.union_index import AnyIndex
from cog.model.load import CogModel
from cog.records import OFF


class ReachGenerator(CopyGenerator):
    """CoG that retrieves another number of chunks than asked; none is the vocabulary alone.

    :param model: The model.
    :param index: The open index.
    :param ablation: Says how many.
    :param allowed_chunks: Chunks that may be copied from; None for all. *Shape:*
        ``(num_chunks,)``
    """

    def __init__(
        self,
        model: CogModel,
        index: AnyIndex,
        *,
        ablation: Ablation,
        allowed_chunks: NDArray[np.bool_] | None = None,
    ) -> None:
        super().__init__(model, index, allowed_chunks=allowed_chunks)
        assert ablation.top_k_documents is not None
        self._top_k = ablation.top_k_documents

    def adapt(self, request: Request) -> Request:
        """The same request with the ablation's number of chunks.

        :param request: What is asked.
        :returns: What is done.
        """
        decoding = replace(request.decoding, top_k_documents=self._top_k)
        return replace(request, decoding=decoding)


class UnverifiedGenerator(CopyGenerator):
    """CoG that writes what was chosen, as in the paper."""

    def adapt(self, request: Request) -> Request:
        """The same request without verification.

        :param request: What is asked.
        :returns: What is done.
        """
        decoding = replace(request.decoding, verify=OFF, verify_threshold=0.0)
        return replace(request, decoding=decoding)


class PhrasesGenerator(CopyGenerator):
    """CoG that copies wherever it can.

    The vocabulary has its turn only where no phrase is admissible: nothing was retrieved, or every
    phrase would be glued to the word before, begins with a token that verification finds too
    unlikely, or has just been refused by it.
    """

    def _join(self, logits: Tensor, scores: Tensor, phrases: PhraseTable) -> NextChoice:
        if bool(torch.isfinite(scores).any()):
            logits = torch.full_like(logits, -torch.inf)
        return super()._join(logits, scores, phrases)


class UnsummedPools(PoolSource):
    """Pools in which every phrase counts as a text of its own."""

    def find_phrases(self, chunks: GatheredChunks) -> Phrases:
        """Find the admissible phrases of gathered words, none beside another.

        :param chunks: The gathered words.
        :returns: The phrases.
        """
        config = self.model.config
        listed = list_phrases(
            chunks, min_words=config.min_phrase_words, max_words=config.max_phrase_words
        )
        return separate_phrases(listed)


class UnsummedGenerator(CopyGenerator):
    """CoG for which every occurrence of a phrase is a choice of its own (CoG, section 3)."""

    pool_source = UnsummedPools


def separate_phrases(listed: PhraseList) -> Phrases:
    """Say of every phrase that its text occurs once.

    :param listed: The phrases.
    :returns: The same in the same order.
    """
    nothing = np.zeros(0, dtype=np.int64)
    return Phrases(listed.first, listed.last, nothing, 0, len(listed.first))
