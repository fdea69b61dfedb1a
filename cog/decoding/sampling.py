"""Taking a choice.

A next-choice distribution goes in, one position of it comes out, greedily or from the nucleus.
"""

import hashlib
from math import isfinite

import numpy as np
import torch
from numpy.typing import NDArray

from cog.decoding.distribution import NextChoice
from cog.errors import GenerationError
from cog.records import Decoding


class Chooser:
    """Takes one choice per step from a text's own random stream.

    The stream depends on the seed and the prefix alone, so a text does not depend on its batch.
    """

    def __init__(self, decoding: Decoding, prefix: str) -> None:
        digest = hashlib.sha256(prefix.encode()).digest()
        entropy = [decoding.seed, int.from_bytes(digest[:8], "little")]
        self._decoding = decoding
        self._random = np.random.Generator(np.random.Philox(np.random.SeedSequence(entropy)))
        self._draw: float | None = None  # of a choice that is not settled

    def choose(self, distribution: NextChoice) -> int:
        """Take a choice, by the same draw as before if that one was not settled.

        If the probabilities are no numbers, it is a ``GenerationError``.
        """
        if not isfinite(distribution.total):
            raise GenerationError(
                "what is chosen from must have probabilities",
                found="scores of the model or of the index that are no numbers",
                run="cog index verify of the corpus; a model with such weights must be replaced",
            )
        if self._decoding.method == "greedy":
            return int(distribution.weights.argmax())
        if self._draw is None:
            self._draw = float(self._random.random())
        return choose_nucleus(
            distribution,
            top_p=self._decoding.top_p,
            draw=self._draw,
            is_token_nucleus=self._decoding.is_verified,
        )

    def settle(self) -> None:
        """Say that what was chosen is written: the next choice has a draw of its own."""
        self._draw = None


def choose_nucleus(
    distribution: NextChoice, *, top_p: float, draw: float, is_token_nucleus: bool = False
) -> int:
    """Draw from the smallest set of choices that holds a mass of ``top_p`` (Holtzman et al. 2020).

    With ``is_token_nucleus`` tokens have a nucleus of their own, and that of all choices says which
    phrases there are, so that a token is as likely among tokens as where nothing can be copied.
    Phrases are many and each has little: what one nucleus leaves out is mostly phrases, or, beside
    one that has much, mostly tokens. (In the paper there is one.)

    No choice below ``(1 - top_p) / num_choices`` can be in such a set, since all of those together
    hold less than what is left out; so a few thousand are sorted instead of all. The draw is
    uniform in [0, 1).
    """
    weights, total = distribution.weights, distribution.total
    if top_p >= 1.0:
        return _pick(weights.double().cumsum(0).cpu().numpy(), draw)
    least, of_tokens = total / len(weights), 0.0
    if is_token_nucleus and distribution.num_tokens < len(weights):
        of_tokens = float(weights[: distribution.num_tokens].sum(dtype=torch.float64))
    if of_tokens:
        least = min(least, of_tokens / distribution.num_tokens)
    kept = (weights >= (1.0 - top_p) * least).nonzero().squeeze(1)
    values = weights[kept].cpu().numpy()
    inside = _nucleus(values, mass=top_p * total)
    if of_tokens:
        num_kept = int((kept < distribution.num_tokens).sum())
        own = _nucleus(values[:num_kept], mass=top_p * of_tokens)
        inside = np.concatenate([own, inside[inside >= num_kept]])
    return int(kept[int(inside[_pick(values[inside].cumsum(dtype=np.float64), draw)])])


def _nucleus(values: NDArray[np.float32], *, mass: float) -> NDArray[np.int64]:
    # positions of the largest values that together hold the mass; of equal values the first
    falling = np.sort(values)[::-1]
    size = int((falling.cumsum(dtype=np.float64) < mass).sum()) + 1
    smallest = falling[min(size, len(falling)) - 1]
    above = np.flatnonzero(values > smallest)
    equal = np.flatnonzero(values == smallest)[: size - len(above)]
    return np.sort(np.concatenate([above, equal]))


def _pick(mass: NDArray[np.float64], draw: float) -> int:
    return min(int(np.searchsorted(mass, draw * mass[-1], side="right")), len(mass) - 1)
