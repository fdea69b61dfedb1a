"""Batches on a device: numpy arrays go in, the tensors that one training step needs come out."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cog.profiles import LossProfile
from cog.training.batches import Batch
from cog.training.losses.spans import SpanGroups, SpanLabels
from cog.training.segmentation.records import BatchLabels

# how models that learnt by different losses are compared
MEASURED = LossProfile(
    token_weight=1.0,
    phrase_weight=1.0,
    candidates="batch",
    positives="all",
    neutrals="wrong",
    weights="none",
)


@dataclass(frozen=True, slots=True)
class BatchTensors:
    """A batch as a training step reads it; rows of flattened tables instead of masks."""

    token_ids: Tensor  # (num_chunks, prefix_len)
    target_rows: Tensor  # (num_tokens,) rows of the flattened hidden states that predict a token
    targets: Tensor  # (num_tokens,) the tokens
    piece_ids: Tensor  # (num_chunks, num_pieces)
    piece_mask: Tensor  # (num_chunks, num_pieces)
    start_rows: Tensor  # (num_words,) row of the flattened pieces where each word starts
    end_rows: Tensor  # (num_words,) the same for ends
    query_targets: Tensor  # (num_queries,) rows of `target_rows` that are queries
    is_phrase: Tensor  # (num_queries,) whether a phrase is the label
    weights: Tensor  # (num_queries,)
    spans: SpanLabels
    # candidates and right spans with nothing left out; None unless asked for
    measured: SpanLabels | None


def to_tensors(
    batch: Batch, losses: LossProfile, device: torch.device, *, is_measured: bool = False
) -> BatchTensors:
    """Turn a batch into tensors on a device.

    Copies to a GPU do not wait. Labels for the log-probability of segments are made only if it is
    measured. A query where no token follows, or another one than its gold, is a ``ValueError``.
    """

    def move(array: NDArray[np.generic]) -> Tensor:
        tensor = torch.from_numpy(np.ascontiguousarray(array))
        if device.type == "cuda":
            return tensor.pin_memory().to(device, non_blocking=True)
        return tensor.to(device)

    labels = batch.labels
    target_rows, targets, query_targets = _find_targets(batch)
    pieces = labels.word_chunks * batch.piece_ids.shape[1]
    return BatchTensors(
        token_ids=move(batch.token_ids),
        target_rows=move(target_rows),
        targets=move(targets),
        piece_ids=move(batch.piece_ids),
        piece_mask=move(batch.piece_mask),
        start_rows=move(pieces + batch.start_pieces),
        end_rows=move(pieces + batch.end_pieces),
        query_targets=move(query_targets),
        is_phrase=move(labels.is_phrase),
        weights=move(labels.weights),
        spans=_span_labels(labels, losses, move),
        measured=_span_labels(labels, MEASURED, move) if is_measured else None,
    )


def _find_targets(
    batch: Batch,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    # flat positions that predict a token, the tokens, and which of them the queries are
    labels = batch.labels
    followed = np.zeros_like(batch.token_mask)
    columns = np.arange(1, batch.token_ids.shape[1])
    is_target = columns >= batch.target_starts[:, None]
    followed[:, :-1] = batch.token_mask[:, 1:] & is_target
    target_rows = np.flatnonzero(followed)
    query_rows = labels.query_chunks * batch.token_ids.shape[1] + labels.query_positions
    if not followed.reshape(-1)[query_rows].all():
        raise ValueError("a query stands where no token follows")
    targets = batch.token_ids.reshape(-1)[target_rows + 1]
    query_targets = np.searchsorted(target_rows, query_rows)
    if not np.array_equal(targets[query_targets], labels.gold_tokens):
        raise ValueError("gold_tokens must be the tokens that follow")
    return target_rows, targets, query_targets


def _span_labels(
    labels: BatchLabels, losses: LossProfile, move: Callable[[NDArray[np.generic]], Tensor]
) -> SpanLabels:
    def group(offsets: NDArray[np.int64], spans: NDArray[np.int64]) -> SpanGroups:
        queries = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        return SpanGroups(move(queries), move(spans), offsets.tolist())

    first = labels.positive_spans[labels.positive_offsets[:-1][labels.is_phrase]]
    offsets, spans = labels.positive_offsets, labels.positive_spans
    # with candidates of one chunk only, occurrences elsewhere cannot count as right
    is_source = losses.candidates == "source"
    if is_source or losses.positives == "first":
        offsets, spans = np.append(0, np.cumsum(labels.is_phrase)), first
    neutral_offsets, neutral_spans = labels.neutral_offsets, labels.neutral_spans
    if losses.neutrals == "wrong":
        neutral_offsets, neutral_spans = np.zeros_like(neutral_offsets), neutral_spans[:0]
    source_chunks = np.full(len(labels.query_chunks), -1)
    source_chunks[labels.is_phrase] = labels.word_chunks[first // labels.span_mask.shape[1]]
    return SpanLabels(
        span_mask=move(labels.span_mask),
        word_chunks=move(labels.word_chunks),
        query_chunks=move(labels.query_chunks),
        source_chunks=move(source_chunks) if is_source else None,
        positives=group(offsets, spans),
        neutrals=group(neutral_offsets, neutral_spans),
    )
