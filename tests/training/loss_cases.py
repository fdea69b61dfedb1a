"""Tiny losses by plain loops: what the tensor code is checked against."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cog.profiles import LossProfile
from cog.training.batches import Batch
from cog.training.segmentation.records import BatchLabels

BAND = 3
WORDS = (5, 4, 6)  # of three chunks


def make_profile(**changes: object) -> LossProfile:
    values = {
        "token_weight": 1.0,
        "phrase_weight": 1.0,
        "candidates": "batch",
        "positives": "all",
        "neutrals": "left-out",
        "weights": "labels",
    }
    return LossProfile(**(values | changes))


def make_batch(seed: int = 0) -> Batch:
    """Three chunks, five queries; the labels follow the form and not any text."""
    random = np.random.default_rng(seed)
    word_chunks = np.repeat(np.arange(3), WORDS)
    num_words = len(word_chunks)
    ends = np.cumsum(WORDS)[word_chunks]
    span_mask = np.arange(num_words)[:, None] + np.arange(BAND)[None] + 2 <= ends[:, None]
    span_mask[[2, 7]] = False  # words that may not begin a phrase
    token_ids = random.integers(0, 11, (3, 6))
    token_mask = np.ones((3, 6), dtype=bool)
    token_mask[1, 4:] = False
    query_chunks, query_positions = np.array([0, 0, 1, 1, 2]), np.array([1, 3, 0, 2, 4])

    def flat(*spans: tuple[int, int]) -> list[int]:
        return [word * BAND + k for word, k in spans]

    positives = [flat((5, 0), (10, 0)), [], flat((0, 2)), [], flat((3, 0), (5, 1), (6, 0))]
    neutrals = [flat((5, 1), (10, 1)), [], flat((0, 0), (0, 1)), flat((9, 0)), []]
    labels = BatchLabels(
        word_chunks=word_chunks,
        span_mask=span_mask,
        query_chunks=query_chunks,
        query_positions=query_positions,
        gold_tokens=token_ids[query_chunks, query_positions + 1],
        is_phrase=np.array([bool(each) for each in positives]),
        positive_offsets=np.cumsum([0, *map(len, positives)]),
        positive_spans=np.array([i for each in positives for i in each]),
        neutral_offsets=np.cumsum([0, *map(len, neutrals)]),
        neutral_spans=np.array([i for each in neutrals for i in each]),
        weights=np.array([1.0, 1.0, 0.5, 1.0, 0.25], dtype=np.float32),
    )
    return Batch(
        number=0,
        documents=np.arange(3),
        token_ids=token_ids,
        token_mask=token_mask,
        target_starts=np.ones(3, dtype=np.int64),
        piece_ids=random.integers(0, 9, (3, 8)),
        piece_mask=np.ones((3, 8), dtype=bool),
        start_pieces=random.integers(0, 8, num_words),
        end_pieces=random.integers(0, 8, num_words),
        labels=labels,
    )


class Vectors(NamedTuple):
    """Random vectors for a batch, in double precision."""

    states: Tensor
    queries: Tensor
    tokens: Tensor
    start: Tensor
    end: Tensor


def make_vectors(batch: Batch, *, dim: int = 4, seed: int = 1) -> Vectors:
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.double)

    return Vectors(
        states=draw(batch.num_queries, dim),
        queries=draw(batch.num_queries, dim),
        tokens=draw(11, dim),
        start=draw(batch.num_words, dim // 2),
        end=draw(batch.num_words, dim // 2),
    )


def plain_joint(batch: Batch, vectors: Vectors, profile: LossProfile) -> list[float]:
    """The joint loss, one query and one span at a time, with every phrase's vector built."""
    losses = []
    for i in range(batch.num_queries):
        labels = batch.labels
        a, b = labels.positive_offsets[i : i + 2]
        positives = labels.positive_spans[a:b].tolist()
        if profile.positives == "first" or profile.candidates == "source":
            positives = positives[:1]
        source = labels.word_chunks[positives[0] // BAND] if positives else None
        total, right = 0.0, 0.0
        for flat in _candidates(labels, i, profile, source):
            word, k = divmod(flat, BAND)
            phrase = torch.cat([vectors.start[word], vectors.end[word + k + 1]])
            score = math.exp(float(vectors.queries[i] @ phrase))
            total += score
            right += score if flat in positives else 0.0
        for token in range(11):
            score = math.exp(float(vectors.states[i] @ vectors.tokens[token]))
            is_gold = token == labels.gold_tokens[i]
            if is_gold and not positives:
                right += score
            if not (is_gold and positives and profile.neutrals == "left-out"):
                total += score
        losses.append(-math.log(right / total))
    return losses


def _candidates(
    labels: BatchLabels, i: int, profile: LossProfile, source: int | None
) -> Iterator[int]:
    a, b = labels.neutral_offsets[i : i + 2]
    neutrals = labels.neutral_spans[a:b].tolist()
    for flat in range(labels.span_mask.size):
        word, k = divmod(flat, BAND)
        chunk = labels.word_chunks[word]
        if not labels.span_mask[word, k] or chunk == labels.query_chunks[i]:
            continue
        if profile.neutrals == "left-out" and flat in neutrals:
            continue
        if profile.candidates == "source" and source not in (None, chunk):
            continue
        yield flat
