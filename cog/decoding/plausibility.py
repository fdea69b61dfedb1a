"""Plausibility: token logits go in, what the prefix encoder finds too unlikely goes out.

The pass that appends a phrase yields the probability of each of its tokens under the prefix
encoder, so a copy can be cut where it stops being plausible at no further pass. (This is not in
the paper, which appends what was chosen.)
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def mask_implausible(
    token_logits: Tensor, scores: Tensor, *, first_tokens: Tensor, min_probability: float
) -> tuple[Tensor, Tensor]:
    """Leave out tokens, and phrases by their first token, that the prefix encoder finds unlikely.

    The most likely token stays whatever its probability.

    :param token_logits: *Shape:* ``(vocab_size,)``
    :param scores: Phrase scores. *Shape:* ``(num_phrases,)``
    :param first_tokens: First token of each phrase. *Shape:* ``(num_phrases,)``
    :param min_probability: Probability of a token, at least.
    :returns: Both, with minus infinity where something is left out.
    """
    probabilities = token_logits.softmax(0)
    is_left_out = probabilities < min(min_probability, float(probabilities.max()))
    phrases_left_out = is_left_out.index_select(0, first_tokens)
    return (
        token_logits.masked_fill(is_left_out, -torch.inf),
        scores.masked_fill(phrases_left_out, -torch.inf),
    )


def count_plausible(
    token_logits: Tensor, token_ids: Sequence[int], *, min_probability: float
) -> int:
    """Count the first tokens of a copy before one that is too unlikely.

    :param token_logits: After each token but the last. *Shape:* ``(num_tokens - 1, vocab_size)``
    :param token_ids: The tokens of the copy; the first has been found plausible when chosen.
    :param min_probability: Probability of a token, at least.
    :returns: Number of tokens to keep, at least one.
    """
    following = torch.tensor(token_ids[1:], device=token_logits.device).unsqueeze(1)
    probabilities = token_logits.softmax(1).gather(1, following).squeeze(1)
    is_plausible = (probabilities >= min_probability).long()
    return 1 + int(is_plausible.cumprod(0).sum())
