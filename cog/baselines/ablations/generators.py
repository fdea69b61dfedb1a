"""Ablations of a few lines: settings, the vocabulary, and the sum over occurrences."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cog.decoding.candidates import Phrases
from cog.decoding.distribution import NextChoice
from cog.decoding.generator import CopyGenerator
from cog.decoding.pool_source import PoolSource
from cog.decoding.request import Request
from cog.index.read.reader import PhraseIndex
from cog.model.load import CogModel


class SettingsGenerator(CopyGenerator):
    """CoG that decodes with other settings than asked.

    :param model: The model.
    :param index: The open index.
    :param settings: The settings that differ.
    :param allowed_chunks: Chunks that may be copied from; None for all. *Shape:*
        ``(num_chunks,)``
    """

    def __init__(
        self,
        model: CogModel,
        index: PhraseIndex,
        *,
        settings: Mapping[str, Any],
        allowed_chunks: NDArray[np.bool_] | None = None,
    ) -> None:
        super().__init__(model, index, allowed_chunks=allowed_chunks)
        self._settings = dict(settings)

    def adapt(self, request: Request) -> Request:
        """The same request with the ablation's settings.

        :param request: What is asked.
        :returns: What is done.
        """
        return replace(request, decoding=replace(request.decoding, **self._settings))


class PhrasesGenerator(CopyGenerator):
    """CoG that copies wherever it can.

    The vocabulary has its turn only where no phrase is admissible: nothing was retrieved, or every
    phrase would be glued to the word before, is left out by a rule, or begins with a token that
    verification finds too unlikely.
    """

    def _join(self, logits: Tensor, scores: Tensor, phrases: Phrases) -> NextChoice:
        if bool(torch.isfinite(scores).any()):
            logits = torch.full_like(logits, -torch.inf)
        return super()._join(logits, scores, phrases)


class UnsummedPools(PoolSource):
    """Pools in which every phrase counts as a text of its own."""

    is_summed = False


class UnsummedGenerator(CopyGenerator):
    """CoG for which every occurrence of a phrase is a choice of its own (CoG, section 3)."""

    pool_source = UnsummedPools
