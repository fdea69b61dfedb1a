"""Plausibility: token logits and a rule go in, what the prefix encoder finds too unlikely is told.

The pass that appends a phrase yields the probability of each of its tokens under the prefix
encoder, so a copy can be cut where it stops being plausible at no further pass. (This is not in
the paper, which appends what was chosen.)
"""

from collections.abc import Sequence
from math import isfinite, sqrt

import torch
from torch import Tensor

from cog.records import ABSOLUTE, ENTROPY, RELATIVE, VERIFY_RULES, Decoding


def is_usable_threshold(rule: str, threshold: float) -> bool:
    """Whether a threshold has a meaning under a rule.

    :param rule: One of ``VERIFY_RULES``.
    :param threshold: The threshold.
    :returns: True for 0 to 1, and under ``entropy`` for anything finite from 0.
    """
    return 0.0 <= threshold <= 1.0 or (rule == ENTROPY and threshold >= 0.0 and isfinite(threshold))


def get_floor(probabilities: Tensor, decoding: Decoding) -> Tensor:
    """The probability that a token must have, after each prefix.

    With the threshold ``t``, the best token's probability ``p`` and the entropy ``H`` in nats it is
    ``t`` (absolute), ``t p`` (relative) or ``min(t, sqrt(t) exp(-H))`` (entropy: the rule of eta
    sampling, Hewitt et al. 2022), and never above ``p``: the best token stays.

    :param probabilities: *Shape:* ``(num_prefixes, vocab_size)``
    :param decoding: Rule and threshold.
    :returns: *Shape:* ``(num_prefixes, 1)``
    :raises ValueError: If there is no such rule.
    """
    best, threshold = probabilities.amax(1, keepdim=True), decoding.verify_threshold
    if decoding.verify == ABSOLUTE:
        return best.clamp(max=threshold)
    if decoding.verify == RELATIVE:
        return best * threshold
    if decoding.verify == ENTROPY:
        entropy = torch.special.entr(probabilities).sum(1, keepdim=True)
        floor = ((-entropy).exp() * sqrt(threshold)).clamp(max=threshold)
        return torch.minimum(floor, best)
    raise ValueError(f"a rule must be one of {', '.join(VERIFY_RULES[1:])}")


def find_implausible(token_logits: Tensor, decoding: Decoding) -> Tensor:
    """Find the tokens that the prefix encoder finds too unlikely.

    :param token_logits: *Shape:* ``(num_prefixes, vocab_size)``
    :param decoding: Rule and threshold.
    :returns: Booleans. *Shape:* ``(num_prefixes, vocab_size)``
    """
    probabilities = token_logits.softmax(1)
    return probabilities < get_floor(probabilities, decoding)


def count_plausible(token_logits: Tensor, token_ids: Sequence[int], decoding: Decoding) -> int:
    """Count the first tokens of a copy before one that is too unlikely.

    :param token_logits: After each token but the last. *Shape:* ``(num_tokens - 1, vocab_size)``
    :param token_ids: The tokens of the copy; the first has been found plausible when chosen.
    :param decoding: Rule and threshold.
    :returns: Number of tokens, at least one.
    """
    following = torch.tensor(token_ids[1:], device=token_logits.device).unsqueeze(1)
    probabilities = token_logits.softmax(1)
    floor = get_floor(probabilities, decoding)
    is_plausible = (probabilities.gather(1, following) >= floor).squeeze(1).long()
    return 1 + int(is_plausible.cumprod(0).sum())
