"""Plausibility: token logits and a rule go in, what the prefix encoder finds too unlikely is told.

The pass that appends a phrase yields the probability of each of its tokens under the prefix
encoder, so a copy can be cut where it stops being plausible at no further pass. (This is not in
the paper, which appends what was chosen.)
"""

from collections.abc import Sequence
from math import sqrt

import torch
from torch import Tensor

from cog.decoding.draft import Draft
from cog.records import ABSOLUTE, ENTROPY, RELATIVE, VERIFY_RULES, Decoding

SURE_TOKENS = 3  # tokens of agreement from which trust grows


def get_floor(probabilities: Tensor, decoding: Decoding) -> Tensor:
    """The probability that a token must have, after each prefix.

    With the threshold ``t``, the best token's probability ``p`` and the entropy ``H`` in nats it is
    ``t`` (absolute), ``t p`` (relative) or ``min(t, sqrt(t) exp(-H))`` (entropy: the rule of eta
    sampling, Hewitt et al. 2022), and never above ``p``: the best token stays.

    *Shape:* ``(num_prefixes, vocab_size)`` to ``(num_prefixes, 1)``
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


def find_least_ratio(nearest: float, decoding: Decoding) -> float:
    """Share of the best token's probability that each token of a copy must have.

    ``far_ratio`` times what the similarity of the prompt's nearest document is below
    ``relevance_level``, and 1 at most; 0 where some document is about the same thing.
    """
    return min(1.0, decoding.far_ratio * max(0.0, decoding.relevance_level - nearest))


def get_probabilities(token_logits: Tensor, token_ids: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Probabilities of the tokens that follow, *shape* ``(num_prefixes,)``, and of all."""
    probabilities = token_logits.softmax(1)
    following = torch.tensor(token_ids, device=token_logits.device).unsqueeze(1)
    return probabilities.gather(1, following).squeeze(1), probabilities


def verify_draft(
    token_logits: Tensor, draft: Draft, decoding: Decoding, *, first: int
) -> tuple[int, list[float]]:
    """Count the tokens of a draft before one that may not be written.

    A token of the chosen phrase must reach the rule's floor, if a rule is on; one after it must
    also reach ``span_ratio`` times the probability of the best token, and every one
    ``least_ratio`` of the draft times that. What a token needs falls by
    ``trust`` nats for every token of unbroken agreement with the source beyond three: what agreed
    before the draft and, in a document about the same thing, what was accepted of it.

    Those before the token ``first`` are accepted; logits are those before each from it on, *shape*
    ``(num_tokens - first, vocab_size)``. Second comes the probability of each that was looked at.
    """
    found, probabilities = get_probabilities(token_logits, draft.token_ids[first:])
    best = probabilities.amax(1)
    floor = torch.zeros_like(best)
    if decoding.is_verified:
        floor = get_floor(probabilities, decoding).squeeze(1)
    positions = torch.arange(first, len(draft.token_ids), device=best.device)
    ratio = torch.where(positions < draft.num_chosen, 0.0, decoding.span_ratio)
    floor = torch.maximum(floor, ratio.clamp(min=draft.least_ratio) * best)
    if decoding.trust:
        agreed = draft.num_agreed + (positions if draft.is_near else 0 * positions)
        floor = floor * torch.exp(-decoding.trust * (agreed - SURE_TOKENS).clamp(min=0).float())
    num_accepted = first + int((found >= floor).long().cumprod(0).sum())
    return num_accepted, found.tolist()
