"""Profiles: those that are shipped, what they promise, and what is refused."""

from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
import yaml
from transformers import (
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
)

from cog.errors import ParamsError
from cog.params import Params, TrainParams
from cog.profiles import HubBase, WheelBase, load_shipped_profiles
from cog.reading import read_record
from cog.training.initial_model import Recipe, load_recipe
from cog.training.model import TrainableModel
from cog.training.tensors import to_tensors
from tests.training.loss_cases import make_batch

SIZES = {
    **{"architecture": "bert", "width": 32, "num_layers": 1, "num_heads": 2},
    **{"vocab_size": 300, "max_positions": 64},
}


def get_recipe(name: str | None) -> Recipe:
    return load_recipe(TrainParams(), name)


def test_default_profile_is_cog_v0_with_low_rank_on_both_sides() -> None:
    recipe = get_recipe(None)
    assert recipe.name == "smollm2-minilm"
    assert isinstance(recipe.model.prefix_base, WheelBase)
    assert recipe.model.retriever_base == recipe.model.phrase_base
    assert recipe.model.prefix_lora_rank > 0
    assert recipe.model.phrase_lora_rank > 0


def test_default_model_folder_has_at_most_16_mib() -> None:
    profile = get_recipe(None).model
    sizes = {"intermediate_size": 1536, "vocab_size": 49152}
    with torch.device("meta"):  # the shapes of the base models, without their weights
        heads = {"num_attention_heads": 9, "num_key_value_heads": 3, "num_hidden_layers": 30}
        lm = LlamaForCausalLM(
            LlamaConfig(hidden_size=576, **heads, **sizes, tie_word_embeddings=True)
        )
        bert = BertModel(BertConfig(hidden_size=384, num_hidden_layers=6, intermediate_size=1536))
        model = TrainableModel(lm, bert, profile=profile, weights={})
    num_bytes = sum(2 * tensor.numel() for tensor in model.trained_weights().values())
    assert 13 << 20 < num_bytes < 15.5 * 2**20


def test_paper_profile_has_the_paper_s_hyper_parameters() -> None:
    recipe = get_recipe("paper")
    model, loop = recipe.model, recipe.loop
    assert (model.prefix_base, model.phrase_base) == (
        HubBase("gpt2", "main"),
        HubBase("bert-base-cased", "main"),
    )
    assert set(asdict(model.rates).values()) == {5e-5}
    assert (model.dropout, loop.max_gradient_norm, loop.max_steps) == (0.1, 1.0, 400_000)
    assert (model.prefix_lora_rank, model.phrase_lora_rank, model.query_projection) == (0, 0, False)
    assert model.max_pieces + 2 == 256
    assert 1 + loop.context_tokens + model.max_chunk_tokens == 512  # of the prefix encoder
    losses = model.losses
    assert (losses.candidates, losses.positives) == ("source", "first")
    assert (losses.token_weight, losses.phrase_weight) == (1.0, 1.0)


@pytest.mark.slow
def test_paper_profile_takes_a_step_with_random_weights() -> None:
    recipe = get_recipe("paper")
    torch.manual_seed(0)
    lm = GPT2LMHeadModel(GPT2Config())
    cased = BertConfig(vocab_size=28996)
    model = TrainableModel(lm, BertModel(cased), profile=recipe.model, weights={})
    learning = sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert 232e6 < learning < 236e6  # GPT-2, BERT and the heads; token embeddings stay tied
    tensors = to_tensors(make_batch(), recipe.model.losses, torch.device("cpu"))
    optimizer = torch.optim.AdamW(model.parameter_groups(recipe.model.rates))
    model.train()
    first = model(tensors)
    first.total.backward()
    assert all(p.grad is not None for p in model.parameters() if p.requires_grad)
    torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.loop.max_gradient_norm)
    optimizer.step()
    model.eval()
    with torch.no_grad():
        second = model(tensors)
    assert second.token < first.token
    assert bool(torch.isfinite(second.phrase))


@pytest.mark.parametrize(
    ("keys", "value", "message"),
    [
        ("dropuot", 0.1, r"dropuot is no known key; next: did you mean dropout?"),
        ("losses.phrase", "factorised", r"losses.phrase must be one of joint; found: 'factorised'"),
        ("losses.weights", "surprise", r"losses.weights must be one of none, labels"),
        ("losses.neutrals", True, r"losses.neutrals must be one of left-out, wrong; found: True"),
        ("rates.heads", "fast", r"rates.heads must be a number from 0; found: 'fast'"),
        ("rates.heads", -1.0, r"rates.heads must be a number from 0; found: -1.0"),
        ("rates.heads", float("nan"), r"rates.heads must be a number from 0; found: nan"),
        ("dropout", 1.0, r"dropout must be a number from 0 to below 1; found: 1.0"),
        ("min_phrase_words", 1, r"min_phrase_words must be a whole number from 2; found: 1"),
        ("min_phrase_words", 9, r".*must be at most max_phrase_words \(8\); found: 9"),
        ("prefix_lora_rank", True, r"prefix_lora_rank must be a whole number from 0; found: T"),
        ("begin_token_id", "first", r"begin_token_id must be a whole number from 0; found: 'fi"),
        ("prefix_base", None, r"prefix_base must be a name, .*vocab_size.*; found: null"),
        ("prefix_base", {"colour": 1}, r"prefix_base must be a name, .*vocab_size"),
        ("prefix_base", {"architecture": "llama"}, r"prefix_base.width is missing"),
        ("losses", "joint", r"losses must be a mapping; found: 'joint'"),
        ("prefix_base", {**SIZES, "architecture": "bert"}, r".*must be one of llama, gpt2; found"),
        ("phrase_base", {**SIZES, "architecture": "llama"}, r".*must be one of bert; found: 'll"),
        ("phrase_base", {**SIZES, "num_layers": 0}, r".*num_layers must be a whole number from"),
        ("phrase_base", {**SIZES, "num_heads": 3}, r".*twice num_heads \(6\); found: 32"),
    ],
)
def test_wrong_profile_is_refused(keys: str, value: object, message: str) -> None:
    path = Path(__file__).parents[2] / "cog" / "profiles.yaml"
    model = place = yaml.safe_load(path.read_text(encoding="utf-8"))["smollm2-minilm"]["model"]
    *outer, last = keys.split(".")
    for key in outer:
        place = place[key]
    place[last] = value
    with pytest.raises(ParamsError, match=rf"^train.profiles.m.model\.?{message}"):
        read_record(Params, {"train": {"profiles": {"m": {"model": model}}}}, error=ParamsError)


def test_a_profile_that_is_not_there_is_told_with_the_nearest() -> None:
    with pytest.raises(ParamsError, match=r"one of tiny, smollm2.*did you mean --profile tiny\?"):
        get_recipe("tini")


def test_a_profile_of_the_project_stands_in_the_place_of_the_shipped_one() -> None:
    shipped = load_shipped_profiles()
    own = replace(shipped["tiny"], loop=replace(shipped["tiny"].loop, max_steps=7))
    params = TrainParams(profiles={"tiny": own, "mine": shipped["paper"]})
    assert load_recipe(params, "tiny").loop.max_steps == 7
    assert load_recipe(params, "mine").model == shipped["paper"].model
