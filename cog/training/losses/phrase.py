"""Phrase losses: log-sum-exps of vocabulary and spans go in, a loss per query comes out."""

import torch
from torch import Tensor


def joint_losses(
    gold_logits: Tensor,
    rest: Tensor,
    spans: tuple[Tensor, Tensor],
    is_phrase: Tensor,
    *,
    is_gold_neutral: bool,
) -> Tensor:
    """Negative log-probability of the next segment (CoG, section 3.2, ``L_p``).

    ``-log(sum_{p right} exp(q · p) / (sum_{p candidate} exp(q · p) + sum_{w in V} exp(h · v_w)))``,
    one softmax over the vocabulary and every admissible span.

    Differs from the paper: all occurrences of the right phrase are right, summed inside the
    logarithm; the first token of a right phrase may be left out of the vocabulary's sum, since
    writing it is not wrong; positions whose label is a token are queries as well.

    Scores are as ``score_vocabulary`` and ``score_spans`` give them; ``is_gold_neutral`` leaves the
    first token of a right phrase out. *Shape* of all: ``(num_queries,)``
    """
    candidates, right = spans
    tokens = torch.logaddexp(gold_logits, rest)
    if is_gold_neutral:
        tokens = torch.where(is_phrase, rest, tokens)
    # where there is no candidate, logaddexp would turn infinities into undefined gradients
    candidates = candidates.clamp_min(torch.finfo(candidates.dtype).min)
    numerator = torch.where(is_phrase, right, gold_logits)
    return torch.logaddexp(tokens, candidates) - numerator


def weighted_mean(losses: Tensor, weights: Tensor) -> Tensor:
    """Average losses by weight; 0 where the weights add up to nothing."""
    tiny = torch.finfo(losses.dtype).tiny
    return (losses * weights).sum() / weights.sum().clamp_min(tiny)
