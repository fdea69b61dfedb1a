"""Scores of all admissible spans: queries and word vectors go in, log-sum-exps come out.

No phrase vector is ever built: the score of a span is one number of a start product plus one of
an end product, summed along a band, for a few queries at a time.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from cog.training.losses import iter_passes


@dataclass(frozen=True, slots=True)
class SpanGroups:
    """Some spans of each query, query by query."""

    queries: Tensor  # (num_spans,) query of each span, ascending
    spans: Tensor  # (num_spans,) flat id `word * band + k`
    # those of query `i` are `[offsets[i], offsets[i + 1])`; a list: no pass waits for the device
    offsets: list[int]


@dataclass(frozen=True, slots=True)
class SpanLabels:
    """Which spans a query may choose, and which are right; a span is (word, k): ``k + 2`` words."""

    span_mask: Tensor  # (num_words, band) whether a span is admissible
    word_chunks: Tensor  # (num_words,) chunk of each word
    query_chunks: Tensor  # (num_queries,) chunk of each query, whose spans are left out
    # (num_queries,) the only chunk whose spans count, -1 for all; None for all of every query
    source_chunks: Tensor | None
    positives: SpanGroups  # right spans
    neutrals: SpanGroups  # spans that are left out

    @property
    def band(self) -> int:
        """Number of lengths that a span may have."""
        return self.span_mask.shape[1]


class _Spans(torch.autograd.Function):
    # For every query i: all_i = log sum of exp s over its candidates, right_i = the same over its
    # right spans. With s[w, k] = a . S[w] + b . E[w + 1 + k],
    # ds = dall * exp(s - all) + dright * exp(s - right), summed over k for the start products and
    # along the band for the end products.

    @staticmethod
    def forward(
        ctx: FunctionCtx,
        start_queries: Tensor,
        end_queries: Tensor,
        start_vectors: Tensor,
        end_vectors: Tensor,
        labels: SpanLabels,
    ) -> tuple[Tensor, Tensor]:
        every = start_queries.new_full((len(start_queries),), -torch.inf)
        right = every.clone()
        inputs = (start_queries, end_queries, start_vectors, end_vectors)
        for rows in _iter_queries(inputs, labels):
            band = _score_band(rows, inputs, labels)
            owners, at = _locate(rows, labels.positives, labels.band)
            every[rows] = band.logsumexp((0, 2))
            right[rows] = _log_sum_by(owners, band[at], num_rows=band.shape[1])
        ctx.save_for_backward(*inputs, every, right)
        ctx.labels = labels  # type: ignore[attr-defined]
        return every, right

    @staticmethod
    @once_differentiable
    def backward(
        ctx: FunctionCtx, grad_every: Tensor, grad_right: Tensor
    ) -> tuple[Tensor | None, ...]:
        *saved, every, right = ctx.saved_tensors  # type: ignore[attr-defined]
        labels: SpanLabels = ctx.labels  # type: ignore[attr-defined]
        start_queries, end_queries, start_vectors, end_vectors = inputs = tuple(saved)
        grads = [torch.zeros_like(tensor) for tensor in inputs]
        finite = every.clamp_min(torch.finfo(every.dtype).min)  # a query without any candidate
        for rows in _iter_queries(inputs, labels):
            band = _score_band(rows, inputs, labels)
            owners, at = _locate(rows, labels.positives, labels.band)
            shares = (band[at] - right[rows][owners]).exp_() * grad_right[rows][owners]
            # the band is overwritten by its own gradient: there is no room for two of them
            band.sub_(finite[rows, None]).exp_().mul_(grad_every[rows, None])
            band[at] += shares
            grad_start = band.sum(0)  # (num_rows, num_words)
            grad_end = torch.zeros_like(grad_start)
            for k, reach in _band_lengths(band):
                grad_end[:, k + 1 :] += band[k, :, :reach]
            grads[0][rows] = grad_start @ start_vectors
            grads[1][rows] = grad_end @ end_vectors
            grads[2].addmm_(grad_start.T, start_queries[rows])
            grads[3].addmm_(grad_end.T, end_queries[rows])
        return (*grads, None)


def score_spans(
    queries: tuple[Tensor, Tensor], vectors: tuple[Tensor, Tensor], labels: SpanLabels
) -> tuple[Tensor, Tensor]:
    """Sum the exponentiated scores of all candidates, and of the right ones (CoG, eq. 1 and 2).

    ``s_i[w, k] = a_i · S[w] + b_i · E[w + 1 + k]`` where the query is ``[a_i; b_i]`` and the phrase
    vector ``[S[w]; E[w + 1 + k]]``.

    :param queries: Start and end halves of the queries. *Shape:* twice ``(num_queries, dim / 2)``
    :param vectors: Start and end vectors of words. *Shape:* twice ``(num_words, dim / 2)``
    :param labels: Candidates and right spans.
    :returns: Log-sum-exp over a query's candidates and over its right spans; minus infinity where
        there is none. *Shape:* twice ``(num_queries,)``
    """
    with torch.autocast(queries[0].device.type, enabled=False):
        every, right = _Spans.apply(*queries, *vectors, labels)  # type: ignore[no-untyped-call]
    return every, right


def _iter_queries(inputs: tuple[Tensor, ...], labels: SpanLabels) -> Iterator[slice]:
    num_queries, row_size = len(labels.query_chunks), labels.span_mask.numel()
    return iter_passes(num_queries, row_size=row_size, device_type=inputs[0].device.type)


def _score_band(rows: slice, inputs: tuple[Tensor, ...], labels: SpanLabels) -> Tensor:
    # (band, num_rows, num_words), minus infinity at what is no candidate
    start_queries, end_queries, start_vectors, end_vectors = inputs
    start = start_queries[rows] @ start_vectors.T  # (num_rows, num_words)
    end = end_queries[rows] @ end_vectors.T
    start.masked_fill_(_bar_words(rows, labels), -torch.inf)
    band = start.new_full((labels.band, *start.shape), -torch.inf)
    for k, reach in _band_lengths(band):
        torch.add(start[:, :reach], end[:, k + 1 :], out=band[k, :, :reach])
    band.masked_fill_(~labels.span_mask.T.unsqueeze(1), -torch.inf)
    _, at = _locate(rows, labels.neutrals, labels.band)
    band[at] = -torch.inf
    return band


def _bar_words(rows: slice, labels: SpanLabels) -> Tensor:
    chunks = labels.word_chunks.unsqueeze(0)
    barred = chunks == labels.query_chunks[rows, None]
    if labels.source_chunks is not None:
        source = labels.source_chunks[rows, None]
        barred |= (source >= 0) & (chunks != source)
    return barred


def _band_lengths(band: Tensor) -> Iterator[tuple[int, int]]:
    for k in range(band.shape[0]):
        if (reach := band.shape[2] - 1 - k) > 0:
            yield k, reach


def _locate(
    rows: slice, groups: SpanGroups, band: int
) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
    # row of each span of these queries, and its place in the table (band, num_rows, num_words)
    part = slice(groups.offsets[rows.start], groups.offsets[rows.stop])
    owners, spans = groups.queries[part] - rows.start, groups.spans[part]
    return owners, (spans % band, owners, spans // band)


def _log_sum_by(owners: Tensor, scores: Tensor, *, num_rows: int) -> Tensor:
    highest = scores.new_full((num_rows,), -torch.inf).scatter_reduce_(0, owners, scores, "amax")
    sums = torch.zeros_like(highest).index_add_(0, owners, (scores - highest[owners]).exp_())
    return highest + sums.log_()
