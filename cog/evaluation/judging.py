"""Perplexity under another model: prompts and generated texts go in, log-likelihoods come out."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cog.model.language_model import LanguageModel


def score_likelihood(
    prompts: Sequence[str], texts: Sequence[str], *, judge: LanguageModel, batch_size: int
) -> NDArray[np.float64]:
    """Log-likelihood of every text conditional on its own prompt.

    Differs from the authors' script, which joins all samples, prompts included, into one stream.
    Prompt and text are tokenised apart, so that exactly the text's tokens are scored. If a text has
    nothing before its first token, it is a ``ValueError``.

    Gives the natural logarithm of the text's probability, and the number of its tokens; both 0 for
    a text without tokens. *Shape:* ``(num_texts, 2)``
    """
    begin = [] if judge.begin_token_id is None else [judge.begin_token_id]
    rows = []
    for prompt, text in zip(prompts, texts, strict=True):
        text_ids = judge.encode(text)[: judge.max_positions - 1]
        prompt_ids = begin + judge.encode(prompt)
        if text_ids and not prompt_ids:
            raise ValueError("the first token of a text needs a prompt or a begin token before it")
        rows.append((prompt_ids[-(judge.max_positions - len(text_ids)) :], text_ids))
    found = np.zeros((len(rows), 2))
    order = sorted(range(len(rows)), key=lambda i: sum(map(len, rows[i])))
    scored = [i for i in order if rows[i][1]]
    for start in range(0, len(scored), batch_size):
        batch = scored[start : start + batch_size]
        found[batch, 0] = _score_batch([rows[i] for i in batch], judge)
        found[batch, 1] = [len(rows[i][1]) for i in batch]
    return found


@torch.inference_mode()
def _score_batch(rows: Sequence[tuple[list[int], list[int]]], judge: LanguageModel) -> list[float]:
    device = judge.body.device
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
