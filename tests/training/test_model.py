"""The model in training: what learns, what is left alone, and that every switch is one."""

import itertools
from pathlib import Path

import pytest
import torch

from cog.errors import CheckpointError
from cog.training.lora import LoraLinear
from cog.training.model import TrainableModel, find_blocks
from cog.training.tensors import to_tensors
from tests.training.loss_cases import make_batch, make_profile
from tests.training.trained import CPU, make_trainable, take_steps


def losses_of(model: TrainableModel, *, is_measured: bool = False) -> dict[str, float]:
    tensors = to_tensors(make_batch(), model.losses, CPU, is_measured=is_measured)
    with torch.no_grad():
        found = model.eval()(tensors)
    names = ("total", "token", "phrase", "segment")
    values = {name: getattr(found, name) for name in names}
    return {name: float(value) for name, value in values.items() if value is not None}


def test_training_lowers_the_loss(tiny_model: Path) -> None:
    ranks = {"prefix_lora_rank": 2, "phrase_lora_rank": 2}
    model = make_trainable(tiny_model, **ranks)
    totals = take_steps(model, num_steps=8)
    assert totals[-1] < 0.9 * totals[0]


def test_begins_at_the_base_models(tiny_model: Path) -> None:
    whole = losses_of(make_trainable(tiny_model, prefix_lora_rank=0))
    low = losses_of(make_trainable(tiny_model, prefix_lora_rank=4))
    assert low["token"] == pytest.approx(whole["token"], rel=1e-6)


def test_only_updates_heads_and_projection_learn_with_low_rank(tiny_model: Path) -> None:
    model = make_trainable(tiny_model, prefix_lora_rank=2, phrase_lora_rank=2)
    frozen = {n: p.clone() for n, p in model.named_parameters() if not p.requires_grad}
    take_steps(model)
    now = dict(model.named_parameters())
    assert frozen
    assert all(torch.equal(now[name], tensor) for name, tensor in frozen.items())
    learning = {name for name, p in model.named_parameters() if p.requires_grad}
    assert all(
        name.endswith((".A", ".B")) or name.startswith(("start.", "end.", "qproj."))
        for name in learning
    )
    layers = [m for m in model.modules() if isinstance(m, LoraLinear)]
    linear = [m for m in model.bert.modules() if isinstance(m, torch.nn.Linear)]
    assert len(layers) == len(linear) + 8  # four a block of GPT-2


def test_every_loss_switch_changes_the_loss(tiny_model: Path) -> None:
    found = {}
    for candidates, positives, neutrals in itertools.product(
        ("batch", "source"), ("all", "first"), ("left-out", "wrong")
    ):
        profile = make_profile(candidates=candidates, positives=positives, neutrals=neutrals)
        key = (candidates, positives if candidates == "batch" else "first", neutrals)
        found[key] = losses_of(make_trainable(tiny_model, losses=profile))["phrase"]
    assert len({round(value, 6) for value in found.values()}) == len(found) == 6
    weighed = {
        weights: losses_of(make_trainable(tiny_model, losses=make_profile(weights=weights)))
        for weights in ("none", "labels")
    }
    assert len({round(each["phrase"], 6) for each in weighed.values()}) == 2
    assert len({round(each["token"], 6) for each in weighed.values()}) == 1


def test_factors_weigh_the_two_losses(tiny_model: Path) -> None:
    found = losses_of(
        make_trainable(tiny_model, losses=make_profile(token_weight=0.5, phrase_weight=2.0))
    )
    assert found["total"] == pytest.approx(0.5 * found["token"] + 2.0 * found["phrase"], rel=1e-6)


def test_measured_segments_do_not_depend_on_what_is_learnt(tiny_model: Path) -> None:
    profiles = (
        make_profile(),
        make_profile(candidates="source", positives="first", neutrals="wrong", weights="none"),
    )
    found = [losses_of(make_trainable(tiny_model, losses=p), is_measured=True) for p in profiles]
    assert found[0]["segment"] == found[1]["segment"] < 0
    plain = make_profile(neutrals="wrong", weights="none")
    same = losses_of(make_trainable(tiny_model, losses=plain))
    assert -found[0]["segment"] == pytest.approx(same["phrase"], rel=1e-6)


def test_recomputed_blocks_have_the_same_gradients(tiny_model: Path) -> None:
    gradients = []
    for checkpoint_blocks in (False, True):
        model = make_trainable(tiny_model, checkpoint_blocks=checkpoint_blocks)
        model.move_to(CPU)
        model.train()
        model(to_tensors(make_batch(), model.losses, CPU)).total.backward()
        gradients.append({n: p.grad for n, p in model.named_parameters() if p.grad is not None})
    assert gradients[0].keys() == gradients[1].keys()
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient, atol=1e-6, rtol=1e-5)


def test_blocks_of_both_encoders_are_found(tiny_model: Path) -> None:
    model = make_trainable(tiny_model)
    assert [len(list(find_blocks(net))) for net in (model.lm, model.bert)] == [2, 2]


@pytest.mark.slow
def test_compiled_blocks_give_the_same_losses(tiny_model: Path) -> None:
    model = make_trainable(tiny_model, prefix_lora_rank=2)
    plain = losses_of(model)
    model.compile_blocks(backend="eager")  # traced as on a GPU, without its compiler
    assert losses_of(model) == pytest.approx(plain, rel=1e-6)


def test_half_precision_keeps_scores_in_float32(tiny_model: Path) -> None:
    model = make_trainable(tiny_model, prefix_lora_rank=2, phrase_lora_rank=2)
    plain = losses_of(model)
    with torch.autocast("cpu", torch.bfloat16):
        tensors = to_tensors(make_batch(), model.losses, CPU)
        found = model.train()(tensors)
    assert found.total.dtype == torch.float32
    assert found.total.item() == pytest.approx(plain["total"], rel=0.02)
    found.total.backward()
    grads = [p.grad for p in model.parameters() if p.requires_grad]
    assert all(grad is not None and bool(grad.isfinite().all()) for grad in grads)


def test_dropout_is_the_profile_s(tiny_model: Path) -> None:
    tensors = to_tensors(make_batch(), make_profile(), CPU)
    for share, is_random in ((0.0, False), (0.3, True)):
        model = make_trainable(tiny_model, dropout=share).train()
        totals = [model(tensors).total.item() for _ in range(2)]
        assert (totals[0] != totals[1]) is is_random


def test_padding_is_not_seen(tiny_model: Path) -> None:
    model = make_trainable(tiny_model)
    wanted = losses_of(model)
    batch = make_batch()
    batch.token_ids[~batch.token_mask] = 7
    tensors = to_tensors(batch, model.losses, CPU)
    assert model(tensors).total.item() == pytest.approx(wanted["total"], rel=1e-6)


def test_groups_hold_every_learning_parameter_once(tiny_model: Path) -> None:
    model = make_trainable(tiny_model)
    groups = model.parameter_groups(make_trainable(tiny_model)._profile.rates)
    held = [id(p) for group in groups for p in group["params"]]
    learning = {id(p) for p in model.parameters() if p.requires_grad}
    assert len(held) == len(set(held))
    assert set(held) == learning


def test_query_without_a_following_token_is_refused() -> None:
    batch = make_batch()
    batch.labels.query_positions[3] = 3  # the chunk ends there
    with pytest.raises(ValueError, match="no token follows"):
        to_tensors(batch, make_profile(), CPU)
    batch = make_batch()
    batch.labels.gold_tokens[0] += 1
    with pytest.raises(ValueError, match="tokens that follow"):
        to_tensors(batch, make_profile(), CPU)


def test_weights_of_another_base_are_refused(tiny_model: Path) -> None:
    wrong = {
        "lm.model.layers.9.q.A": torch.zeros(2, 16),
        "lm.model.layers.9.q.B": torch.zeros(16, 2),
    }
    with pytest.raises(CheckpointError, match="fit their base model; found: no layer"):
        make_trainable(tiny_model, weights=wrong)
