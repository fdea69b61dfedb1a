"""Losses against plain loops over tiny tensors, and their gradients against finite differences."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from cog.training.batches import Batch
from cog.training.losses.spans import score_spans
from cog.training.losses.vocabulary import (
    joint_losses,
    score_vocabulary,
    token_losses,
    weighted_mean,
)
from cog.training.tensors import BatchTensors, to_tensors
from tests.training.loss_cases import make_batch, make_profile, make_vectors, plain_joint

CPU = torch.device("cpu")
ELEMENTS = "cog.training.losses.CPU_ELEMENTS"  # scores that exist at once
GOLD = torch.tensor([0, 3, 3, 10, 7])
SWITCHES = list(itertools.product(("batch", "source"), ("all", "first"), ("left-out", "wrong")))


@pytest.fixture(scope="module")
def batch() -> Batch:
    return make_batch()


def joint(
    tensors: BatchTensors, gold: Tensor, parts: tuple[Tensor, ...], *, neutral: bool
) -> Tensor:
    states, queries, tokens, start, end = parts
    scores = score_vocabulary(states, tokens, gold)
    halves = queries[:, :2].contiguous(), queries[:, 2:].contiguous()
    spans = score_spans(halves, (start, end), tensors.spans)
    return joint_losses(*scores, spans, tensors.is_phrase, is_gold_neutral=neutral)


@pytest.mark.parametrize("size", [1, 100, 10**6])
def test_token_loss_equals_cross_entropy(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ELEMENTS, size)
    vectors = make_vectors(make_batch())
    found = token_losses(*score_vocabulary(vectors.states, vectors.tokens, GOLD))
    logits = vectors.states @ vectors.tokens.T
    torch.testing.assert_close(
        found, torch.nn.functional.cross_entropy(logits, GOLD, reduction="none")
    )


def test_token_loss_of_a_sure_model_keeps_a_gradient() -> None:
    # 1 - p is below what float32 can tell from 1; the loss and its gradient are not
    states = torch.tensor([[1.0]], requires_grad=True)
    tokens = torch.tensor([[40.0], [0.0]])
    loss = token_losses(*score_vocabulary(states, tokens, torch.tensor([0])))
    loss.sum().backward()
    assert loss.item() == pytest.approx(4.248e-18, rel=1e-3)
    assert states.grad is not None
    assert states.grad.item() == pytest.approx(-40 * 4.248e-18, rel=1e-3)


def test_half_precision_logits_are_kept_in_float32() -> None:
    vectors = make_vectors(make_batch())
    states, tokens = vectors.states.bfloat16(), vectors.tokens.bfloat16()
    found, rest = score_vocabulary(states, tokens, GOLD)
    assert found.dtype == rest.dtype == torch.float32


def test_gradient_of_vocabulary_scores_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = make_vectors(make_batch())
    states, tokens = vectors.states.requires_grad_(), vectors.tokens.requires_grad_()
    for size in (22, 10**6):
        monkeypatch.setattr(ELEMENTS, size)
        assert torch.autograd.gradcheck(lambda s, t: score_vocabulary(s, t, GOLD), (states, tokens))


@pytest.mark.parametrize(("candidates", "positives", "neutrals"), SWITCHES)
def test_joint_loss_equals_plain_loop(
    batch: Batch,
    candidates: str,
    positives: str,
    neutrals: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    profile = make_profile(candidates=candidates, positives=positives, neutrals=neutrals)
    tensors = to_tensors(batch, profile, CPU)
    vectors = make_vectors(batch)
    gold = torch.from_numpy(batch.labels.gold_tokens)
    expected = plain_joint(batch, vectors, profile)
    for size in (1, 100, 10**6):  # one query at a time, two, all
        monkeypatch.setattr(ELEMENTS, size)
        found = joint(tensors, gold, vectors, neutral=neutrals == "left-out")
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-10)


@pytest.mark.parametrize("candidates", ["batch", "source"])
def test_gradient_of_joint_loss_is_right(
    batch: Batch, candidates: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ELEMENTS, 100)
    tensors = to_tensors(batch, make_profile(candidates=candidates), CPU)
    vectors = make_vectors(batch)
    gold = torch.from_numpy(batch.labels.gold_tokens)
    for part in vectors:
        part.requires_grad_()
    assert torch.autograd.gradcheck(
        lambda *parts: joint(tensors, gold, parts, neutral=True), tuple(vectors)
    )


def test_batch_without_a_candidate_costs_what_tokens_cost(batch: Batch) -> None:
    # a batch of one chunk: every span is the query's own
    vectors = make_vectors(batch)
    spans = torch.full((5,), -torch.inf, dtype=torch.double, requires_grad=True)
    gold = torch.from_numpy(batch.labels.gold_tokens)
    scores = score_vocabulary(vectors.states.requires_grad_(), vectors.tokens, gold)
    nothing = torch.zeros(5, dtype=torch.bool)
    losses = joint_losses(*scores, (spans, spans), nothing, is_gold_neutral=True)
    torch.testing.assert_close(losses, token_losses(*scores))
    losses.sum().backward()
    assert torch.isfinite(spans.grad).all()  # type: ignore[arg-type]


def test_query_with_every_span_barred_has_a_finite_gradient(batch: Batch) -> None:
    none = np.zeros(0, dtype=np.int64)
    barren = replace(
        batch.labels,
        span_mask=np.zeros_like(batch.labels.span_mask),
        is_phrase=np.zeros(5, dtype=bool),
        positive_offsets=np.zeros(6, dtype=np.int64),
        positive_spans=none,
        neutral_offsets=np.zeros(6, dtype=np.int64),
        neutral_spans=none,
    )
    labels = to_tensors(replace(batch, labels=barren), make_profile(), CPU).spans
    vectors = make_vectors(batch)
    parts = [part.requires_grad_() for part in (vectors.queries, vectors.start, vectors.end)]
    every, _ = score_spans((parts[0][:, :2], parts[0][:, 2:]), (parts[1], parts[2]), labels)
    assert (every == -torch.inf).all()
    every.clamp_min(-1e9).sum().backward()
    assert all((part.grad == 0).all() for part in parts)


def test_weights_average_and_may_all_be_zero() -> None:
    losses = torch.tensor([1.0, 5.0])
    assert weighted_mean(losses, torch.tensor([3.0, 1.0])).item() == pytest.approx(2.0)
    assert weighted_mean(losses, torch.zeros(2)).item() == 0.0
    assert weighted_mean(losses[:0], torch.zeros(0)).item() == 0.0
