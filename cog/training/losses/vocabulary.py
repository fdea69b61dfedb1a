"""Scores of the vocabulary: hidden states go in, gold logits and log-sum-exps come out.

And the losses that are made of them. The full table of logits never exists at once, neither forward
nor backward.
"""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from cog.training.losses import iter_passes


class _Vocabulary(torch.autograd.Function):
    # z = h E^T. Out come the gold logit z_g and r = log sum_{w != g} exp z_w; since the gold logit
    # is kept apart, dz_w = dr * exp(z_w - r) for w != g and dz_g is its own gradient.

    @staticmethod
    def forward(
        ctx: FunctionCtx, hidden_states: Tensor, weight: Tensor, gold: Tensor
    ) -> tuple[Tensor, Tensor]:
        gold_logits, rest = [], []
        for rows in _iter_rows(hidden_states, weight):
            logits = _multiply(hidden_states[rows], weight)  # (num_rows, vocab_size)
            index = gold[rows].unsqueeze(1)
            gold_logits.append(logits.gather(1, index).squeeze(1))
            rest.append(logits.scatter_(1, index, -torch.inf).logsumexp(1))
        if not rest:
            empty = hidden_states.new_zeros(0)
            gold_logits, rest = [empty], [empty]
        log_rest = torch.cat(rest)
        ctx.save_for_backward(hidden_states, weight, gold, log_rest)
        return torch.cat(gold_logits), log_rest

    @staticmethod
    @once_differentiable
    def backward(
        ctx: FunctionCtx, grad_gold: Tensor, grad_rest: Tensor
    ) -> tuple[Tensor, Tensor | None, None]:
        hidden_states, weight, gold, rest = ctx.saved_tensors  # type: ignore[attr-defined]
        grad_states = torch.empty_like(hidden_states)
        grad_weight = torch.zeros_like(weight) if ctx.needs_input_grad[1] else None  # type: ignore[attr-defined]
        for rows in _iter_rows(hidden_states, weight):
            logits = _multiply(hidden_states[rows], weight)
            grads = logits.sub_(rest[rows].unsqueeze(1)).exp_().mul_(grad_rest[rows].unsqueeze(1))
            grads.scatter_(1, gold[rows].unsqueeze(1), grad_gold[rows].unsqueeze(1))
            grads = grads.to(weight.dtype)
            grad_states[rows] = grads @ weight
            if grad_weight is not None:
                grad_weight.addmm_(grads.T, hidden_states[rows])
        return grad_states, grad_weight, None


def score_vocabulary(hidden_states: Tensor, weight: Tensor, gold: Tensor) -> tuple[Tensor, Tensor]:
    """Score the vocabulary, ``z = h E^T``, and keep what losses need of it.

    The log-sum-exp leaves the gold token out, for two reasons: the token loss is then
    ``softplus(rest - gold)``, exact however sure the model is, and a query whose label is a phrase
    needs the sum without the phrase's first token.

    :param hidden_states: *Shape:* ``(num_rows, dim)``
    :param weight: Token embeddings, of the same type. *Shape:* ``(vocab_size, dim)``
    :param gold: The right token of each row. *Shape:* ``(num_rows,)``
    :returns: Logits of the right tokens, and ``log sum_{w != gold} exp(z_w)``. *Shape:* twice
        ``(num_rows,)``
    """
    with torch.autocast(hidden_states.device.type, enabled=False):
        gold_logits, rest = _Vocabulary.apply(hidden_states, weight, gold)  # type: ignore[no-untyped-call]
    return gold_logits, rest


def token_losses(gold_logits: Tensor, rest: Tensor) -> Tensor:
    """Token loss of each row (CoG, section 3.2, ``L_t``): ``-log(exp z_g / sum_w exp z_w)``."""
    return torch.nn.functional.softplus(rest - gold_logits)


def _iter_rows(states: Tensor, weight: Tensor) -> Iterator[slice]:
    return iter_passes(len(states), row_size=len(weight), device_type=states.device.type)


def _multiply(hidden_states: Tensor, weight: Tensor) -> Tensor:
    # half precision keeps eight bits, too few for logits: the product is accumulated and kept in
    # float32
    if hidden_states.dtype not in (torch.bfloat16, torch.float16):
        return hidden_states @ weight.T
    if hidden_states.is_cuda:
        return torch.mm(hidden_states, weight.T, out_dtype=torch.float32)
    return (hidden_states @ weight.T).float()


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
