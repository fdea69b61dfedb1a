"""Guesses: a text goes in, the tokens that are likely to be chosen next come out, as a tree.

What often follows the text's last tokens, in the index and in the text itself, is read in the pass
that reads its draft. Where a choice then takes a guessed token, what comes behind it is known
already and the next choice needs no pass. Every choice is the one that is taken without guesses.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush, nlargest
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

GUESS_CONTEXT = 4  # last tokens by which a guess is made
MAX_SAMPLED = 64  # places of the index for each number of them
MAX_OWN_TOKENS = 512  # of the text itself
OWN_WEIGHT = 2  # of a place in it, in places of the index
DOUBT = (3.0, 1.0, 1.0, 1.0)  # of what stands behind 1, 2 … of the last tokens
SampleFollowers = Callable[[Sequence[int]], list[list[int]]]


@dataclass(frozen=True, slots=True)
class Guesses:
    """Tokens that may follow a draft; several may follow the same one.

    :param parents: Of each, the number of the one before it; -1 for the end of the draft.
    """

    token_ids: list[int]
    parents: list[int]

    def find(self, parent: int, token_id: int) -> int:
        """The number of a token behind another (-1: the draft's end); -1 if it is no guess."""
        for number, guess in enumerate(zip(self.parents, self.token_ids, strict=True)):
            if guess == (parent, token_id):
                return number
        return -1


NO_GUESSES = Guesses([], [])


def guess_tokens(
    sample: SampleFollowers, token_ids: Sequence[int], *, max_tokens: int, max_depth: int
) -> Guesses:
    """Guess how a text goes on: the paths that are likeliest, the best first.

    ``sample`` gives tokens that follow some last tokens in the index, as
    :func:`~cog.index.search.contexts.sample_followers` does; no path is longer than ``max_depth``.
    What follows a token stands behind it.
    """
    own = np.array(token_ids[-MAX_OWN_TOKENS:])
    guesses = Guesses([], [])
    waiting: list[tuple[float, int, int, list[int]]] = []  # the likeliest first

    def look_behind(path: list[int], parent: int, share: float) -> None:
        tail = [*token_ids[-GUESS_CONTEXT:], *path][-GUESS_CONTEXT:]
        likely = nlargest(max_tokens, estimate_next(sample(tail), own, tail).items(), itemgetter(1))
        for token_id, own_share in likely:
            order = len(waiting) + len(guesses.token_ids) * max_tokens
            heappush(waiting, (-share * own_share, order, parent, [*path, token_id]))

    look_behind([], -1, 1.0)
    while waiting and len(guesses.token_ids) < max_tokens:
        share, _, parent, path = heappop(waiting)
        guesses.token_ids.append(path[-1])
        guesses.parents.append(parent)
        number = len(guesses.token_ids) - 1
        if len(path) < max_depth and number + 1 < max_tokens:
            look_behind(path, number, -share)
    return guesses


def estimate_next(
    sampled: Sequence[Sequence[int]], own: NDArray[np.int64], tail: Sequence[int]
) -> dict[int, float]:
    """Estimate which token follows, by what follows ever more of the last tokens.

    Each number of last tokens counts by ``places / (places + doubt * different tokens)`` against
    fewer of them (Witten and Bell 1991). Sampled are tokens that follow in the index, by number of
    last tokens; ``own`` are the tokens of the text. Gives shares by token, together at most 1.
    """
    shares: dict[int, float] = {}
    places = np.arange(1, len(own))  # of what stands behind as many of the last tokens
    for depth, (last, doubt) in enumerate(zip(reversed(tail), DOUBT, strict=False), start=1):
        places = places[places >= depth]
        places = places[own[places - depth] == last]
        counts = Counter(sampled[depth - 1] if depth <= len(sampled) else ())
        for token_id in own[places].tolist():
            counts[token_id] += OWN_WEIGHT
        if not counts:
            break
        total = counts.total()
        weight = total / (total + doubt * len(counts))
        shares = {token_id: share * (1.0 - weight) for token_id, share in shares.items()}
        for token_id, count in counts.items():
            shares[token_id] = shares.get(token_id, 0.0) + weight * count / total
    return shares
