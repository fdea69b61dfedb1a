"""The authors' factorised loss: start and end are two choices of their own."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from cog.training.losses import max_elements_on
from cog.training.losses.vocabulary import score_vocabulary


@dataclass(frozen=True, slots=True)
class EdgeLabels:
    """Which words one end of a phrase may be, and which is right.

    :param is_candidate: Whether a phrase may begin (or end) with a word. *Shape:* ``(num_words,)``
    :param word_chunks: Chunk of each word. *Shape:* ``(num_words,)``
    :param query_chunks: Chunk of each query. *Shape:* ``(num_queries,)``
    :param right_words: First (or last) word of the right phrase, -1 where the label is a token.
        *Shape:* ``(num_queries,)``
    """

    is_candidate: Tensor
    word_chunks: Tensor
    query_chunks: Tensor
    right_words: Tensor


def edge_losses(
    queries: Tensor,
    weight: Tensor,
    vectors: Tensor,
    gold_tokens: Tensor,
    labels: EdgeLabels,
    *,
    max_elements: int | None = None,
) -> Tensor:
    """Loss of one end of the next segment, as the authors' code has it (``loss_1`` and ``loss_2``).

    ``-log(exp(x_right) / (sum_{w in V} exp(a · v_w) + sum_{j} exp(a · S[j])))`` with ``a`` one half
    of the query, ``v_w`` the same half of the token embedding and ``S`` the start (or end) vectors.
    Where a phrase is the label, ``j`` runs over the words of its own source chunk and its first
    token is a negative; elsewhere over the words of all other chunks. Only one occurrence is right.

    Differs from the authors: words instead of WordPieces, only those that may begin (or end) a
    phrase; and a query's own chunk, which here holds the answer, is left out.

    :param queries: One half of the queries. *Shape:* ``(num_queries, dim / 2)``
    :param weight: The same half of the token embeddings. *Shape:* ``(vocab_size, dim / 2)``
    :param vectors: Start (or end) vectors of words. *Shape:* ``(num_words, dim / 2)``
    :param gold_tokens: The next token. *Shape:* ``(num_queries,)``
    :param labels: Candidates and right words.
    :param max_elements: Number of scores that exist at once; None for what suits the device.
    :returns: *Shape:* ``(num_queries,)``
    """
    max_elements = max_elements or max_elements_on(queries.device.type)
    gold_logits, rest = score_vocabulary(queries, weight, gold_tokens, max_elements=max_elements)
    step = max(1, max_elements // max(1, len(vectors)))
    with torch.autocast(queries.device.type, enabled=False):
        parts = [
            checkpoint(
                _score_words, queries, vectors, labels, slice(i, i + step), use_reentrant=False
            )
            for i in range(0, max(1, len(queries)), step)
        ]
    candidates, right = (torch.cat(part) for part in zip(*parts, strict=True))
    candidates = candidates.clamp_min(torch.finfo(candidates.dtype).min)
    total = torch.logaddexp(torch.logaddexp(gold_logits, rest), candidates)
    return total - torch.where(labels.right_words >= 0, right, gold_logits)


def _score_words(
    queries: Tensor, vectors: Tensor, labels: EdgeLabels, rows: slice
) -> tuple[Tensor, Tensor]:
    scores = (queries[rows] @ vectors.T).to(torch.promote_types(queries.dtype, torch.float32))
    chunks = labels.word_chunks.unsqueeze(0)
    right_words = labels.right_words[rows].unsqueeze(1)
    is_phrase = right_words >= 0
    index = right_words.clamp_min(0)
    source = labels.word_chunks[index]  # (num_rows, 1)
    is_open = torch.where(is_phrase, chunks == source, chunks != labels.query_chunks[rows, None])
    is_open &= labels.is_candidate
    # a finite floor, so that a row without candidates has a gradient of zero
    floor = torch.finfo(scores.dtype).min
    return scores.masked_fill(~is_open, floor).logsumexp(1), scores.gather(1, index).squeeze(1)
