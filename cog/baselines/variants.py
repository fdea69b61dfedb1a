"""CoG with a few lines changed: the vocabulary, and the sum over occurrences."""

import torch
from torch import Tensor

from cog.baselines.system import PHRASES, UNSUMMED
from cog.decoding.candidates import Phrases
from cog.decoding.distribution import NextChoice
from cog.decoding.generator import CopyGenerator
from cog.decoding.pool_source import PoolSource


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


KINDS: dict[str, type[CopyGenerator]] = {PHRASES: PhrasesGenerator, UNSUMMED: UnsummedGenerator}
