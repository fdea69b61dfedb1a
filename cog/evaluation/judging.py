"""Perplexity under another model: prompts and generated texts go in, log-likelihoods come out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

Encode = Callable[[str], Sequence[int]]


@dataclass(frozen=True, slots=True)
class TextLikelihood:
    """How likely one text is, given its prompt.

    :param log_likelihood: Natural logarithm of the probability of the text's tokens.
    :param num_tokens: Number of the text's tokens.
    """

    log_likelihood: float
    num_tokens: int


@dataclass(frozen=True, slots=True)
class JudgeModel:
    """A causal language model that judges texts.

    :param body: Gives ``last_hidden_state`` for ``input_ids`` and ``attention_mask``.
    :param head: Turns hidden states into logits over the vocabulary.
    :param encode: Tokenises a text without special tokens.
    :param begin_token_id: Token put before every prompt; None for none.
    :param max_positions: Number of tokens that the model can read.
    """

    body: nn.Module
    head: nn.Module
    encode: Encode
    begin_token_id: int | None
    max_positions: int


def score_likelihood(
    prompts: Sequence[str], texts: Sequence[str], *, judge: JudgeModel, batch_size: int
) -> list[TextLikelihood]:
    """Log-likelihood of every text conditional on its own prompt.

    Differs from the authors' script, which joins all samples, prompts included, into one stream.
    Prompt and text are tokenised apart, so that exactly the text's tokens are scored.

    :param prompts: Prompts.
    :param texts: Generated texts, in the same order.
    :param judge: The model that judges.
    :param batch_size: Number of texts judged in one pass.
    :returns: In the order of the texts; a text without tokens has likelihood 0 and no token.
    :raises ValueError: If a text has no prompt, or has nothing before its first token.
    """
    if len(prompts) != len(texts):
        raise ValueError("every text needs its prompt")
    begin = [] if judge.begin_token_id is None else [judge.begin_token_id]
    rows = []
    for prompt, text in zip(prompts, texts, strict=True):
        text_ids = list(judge.encode(text))[: judge.max_positions - 1]
        prompt_ids = begin + list(judge.encode(prompt))
        if text_ids and not prompt_ids:
            raise ValueError("the first token of a text needs a prompt or a begin token before it")
        rows.append((prompt_ids[-(judge.max_positions - len(text_ids)) :], text_ids))
    order = sorted(range(len(rows)), key=lambda i: sum(map(len, rows[i])))
    found = [TextLikelihood(0.0, 0)] * len(rows)
    scored = [i for i in order if rows[i][1]]
    for start in range(0, len(scored), batch_size):
        batch = scored[start : start + batch_size]
        likelihoods = _score_batch([rows[i] for i in batch], judge)
        for i, value in zip(batch, likelihoods, strict=True):
            found[i] = TextLikelihood(value, len(rows[i][1]))
    return found


@torch.inference_mode()
def _score_batch(rows: Sequence[tuple[list[int], list[int]]], judge: JudgeModel) -> list[float]:
    device = next(judge.body.parameters()).device
    lengths = [len(prompt) + len(text) for prompt, text in rows]
    ids = torch.zeros(len(rows), max(lengths), dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, (prompt, text) in enumerate(rows):
        ids[row, : lengths[row]] = torch.tensor(prompt + text)
        mask[row, : lengths[row]] = 1  # padding on the right is never seen by what is scored
    output = judge.body(input_ids=ids.to(device), attention_mask=mask.to(device))
    states: Tensor = output.last_hidden_state  # (batch, prefix_len, dim)
    found = []
    for row, (prompt, text) in enumerate(rows):
        first = len(prompt) - 1
        logits = judge.head(states[row, first : first + len(text)]).float()
        chosen = torch.tensor(text, device=device)
        gold = logits.gather(1, chosen.unsqueeze(1)).squeeze(1)
        found.append(float((gold - logits.logsumexp(dim=1)).double().sum()))
    return found
