"""What a reading of the table leaves: phrase scores go in, where a choice may lie comes out.

Equal texts lie anywhere in the table, and their probabilities are to be summed, exactly, without
holding the table. So the first reading adds weights up by some bits of the text's hash: a text's
weight is at most that of its bucket. It also adds them up by size. All choices whose weight is
below a floor together weigh at most what all occurrences below it do; the highest floor for which
that is less than the nucleus leaves out is one that no member of the nucleus is below. The second
reading keeps the phrases of those buckets only that reach the floor.
"""

from math import exp

import torch
from torch import Tensor

from cog.baselines.ablations.table import NUM_BUCKETS
from cog.records import Decoding

BINS_PER_NAT = 8
HALF_OF_BINS = 1024
SLACK = 1e-3  # sums of float32 differ by their order


class Tally:
    """Sums over all candidates of one step.

    :param logits: Token logits. *Shape:* ``(vocab_size,)``
    """

    def __init__(self, logits: Tensor) -> None:
        self.highest = float(logits.max())
        self.total = 0.0
        self.num_phrases = 0
        self._num_tokens = len(logits)
        self._middle = self.highest
        self._masses = torch.zeros(NUM_BUCKETS, device=logits.device)
        self._sizes = torch.zeros(2 * HALF_OF_BINS, dtype=torch.float64, device=logits.device)
        self._add(logits)

    def add(self, scores: Tensor, buckets: Tensor) -> None:
        """Count the phrases of a block in.

        :param scores: Their scores. *Shape:* ``(num_phrases,)``
        :param buckets: Their buckets. *Shape:* ``(num_phrases,)``
        """
        self.num_phrases += len(scores)
        if not len(scores):
            return
        highest = float(scores.max())
        if highest > self.highest:  # all weights are told against the largest
            factor = exp(self.highest - highest)
            self._masses *= factor
            self._sizes *= factor
            self.total *= factor
            self.highest = highest
        self._masses.index_add_(0, buckets, self._add(scores))

    def find_hot(self, decoding: Decoding) -> Tensor:
        """Find the buckets in which a text may lie that can be chosen.

        :param decoding: The settings.
        :returns: Booleans. *Shape:* ``(num_buckets,)``
        """
        return self._masses >= self.get_floor(decoding) * (1.0 - SLACK)

    def get_floor(self, decoding: Decoding) -> float:
        """A weight that every text which can be chosen reaches.

        :param decoding: The settings.
        :returns: That weight; 0 if any may be.
        """
        if decoding.method == "greedy":
            return 1.0  # the weight of the best candidate; a text that is chosen has as much
        mass = (1.0 - decoding.top_p) * self.total  # of what the nucleus leaves out
        plain = mass / (self._num_tokens + self.num_phrases)
        is_left_out = self._sizes.cumsum(0) < mass  # by the upper edge of each bin
        is_left_out[-1] = False  # the last bin has none
        num_bins = int(is_left_out.sum())
        if not num_bins:
            return plain
        edge = self._middle + (num_bins - HALF_OF_BINS) / BINS_PER_NAT
        return max(plain, exp(edge - self.highest))

    def _add(self, scores: Tensor) -> Tensor:
        weights = torch.exp(scores - self.highest)
        self.total += float(weights.sum(dtype=torch.float64))
        bins = ((scores - self._middle) * BINS_PER_NAT).floor_()
        bins = bins.clamp_(-HALF_OF_BINS, HALF_OF_BINS - 1).long() + HALF_OF_BINS
        self._sizes.index_add_(0, bins, weights.double())
        return weights
