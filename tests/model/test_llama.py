"""What is read without transformers, against transformers' own modules; and what is left to it."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    Gemma2Config,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    PreTrainedConfig,
)

from cog.errors import CheckpointError
from cog.model.base_form import read_form
from cog.model.llama import LlamaNetwork, is_llama
from cog.model.load import load_index_model, load_model
from cog.model.modules import CausalModules
from cog.model.prefix_encoder import PrefixEncoder
from cog.model.weights import TrainedTensors, Weights
from tests.model_fixtures import make_tiny_model

IDS = [[3, 17, 40, 41, 42, 99, 7, 8], [5], list(range(1, 30))]
STRETCHED = {
    "rope_type": "llama3",
    "rope_theta": 5e3,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
LINEAR = {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}
KINDS: dict[str, dict[str, Any]] = {
    "tied": {"tie_word_embeddings": True},
    "untied, with biases": {"attention_bias": True, "mlp_bias": True},
    "own width of heads": {"head_dim": 8, "num_key_value_heads": 1},
    "stretched rotations": {"rope_parameters": STRETCHED},
    "linear rotations": {"rope_parameters": LINEAR},
    "yarn": {"rope_parameters": LINEAR | {"rope_type": "yarn", "beta_fast": 16.0}},
}


def make_base(folder: Path, **settings: Any) -> Path:  # noqa: ANN401
    sizes = {
        "vocab_size": 120,
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
    }
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**(sizes | settings)))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    model.save_pretrained(folder, max_shard_size="10KB")  # several files, as large ones have
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_it_reads_what_the_modules_of_transformers_read(kind: str, tmp_path: Path) -> None:
    base = make_base(tmp_path, **KINDS[kind])
    form = read_form(base)
    assert form is not None
    assert is_llama(form)
    network = LlamaNetwork(form, TrainedTensors(form.tensors, {}, scale=1.0), "float32")
    plain = AutoModelForCausalLM.from_pretrained(base).eval()
    assert (network.vocab_size, network.max_positions) == (120, 256)
    for ids in IDS:
        encoder = PrefixEncoder(network, query_projection=None, begin_token_id=None)
        with torch.inference_mode():
            wanted = plain(torch.tensor([ids]), use_cache=False).logits[0]
            found = encoder.token_logits(
                encoder.append(encoder.new_cache(batch=1, capacity=4), [ids])
            )
        torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    "settings",
    [
        {"hidden_act": "gelu"},
        {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}},
    ],
)
def test_another_kind_is_left_to_transformers(settings: dict[str, Any], tmp_path: Path) -> None:
    form = read_form(make_base(tmp_path, **settings))
    assert form is not None
    assert not is_llama(form)


def test_a_base_that_is_not_read_here_writes_all_the_same(tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path, architecture="llama")
    read = load_model(folder).prefix_encoder
    path = folder / "prefix" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {"hidden_act": "gelu"}))
    left = load_model(folder).prefix_encoder
    assert isinstance(read.network, LlamaNetwork)
    assert isinstance(left.network, CausalModules)
    states = left.append_last(left.new_cache(batch=1, capacity=4), IDS[:1])
    assert states.shape == (1, 16)
    assert torch.isfinite(left.token_logits(states)).all()


@pytest.mark.parametrize("damage", ["no config", "no numbers", "half a file"])
def test_a_damaged_base_is_told_as_ever(damage: str, tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path, architecture="llama")
    weights = folder / "prefix" / "model.safetensors"
    if damage == "no config":
        (folder / "prefix" / "config.json").write_text("[")
    elif damage == "no numbers":
        weights.unlink()
    else:
        weights.write_bytes(weights.read_bytes()[:1000])
    assert read_form(folder / "prefix") is None
    with pytest.raises(CheckpointError, match="must be safetensors of a kind"):
        load_model(folder)


@pytest.mark.parametrize(
    ("part", "name"),
    [
        ("prefix", "model.norm.weight"),
        ("prefix", "model.layers.1.self_attn.q_proj.weight"),
        ("phrase", "encoder.layer.1.output.dense.weight"),
    ],
)
def test_a_tensor_that_is_missing_is_named(part: str, name: str, tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path, architecture="llama")
    edit_tensors(folder / part, lambda tensors: tensors.pop(name))
    with pytest.raises(CheckpointError, match=f"found: no {name}"):
        (load_model if part == "prefix" else load_index_model)(folder)


def test_transformers_fills_no_tensor_with_random_numbers(tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path, architecture="gpt2")
    name = "transformer.h.1.mlp.c_fc.weight"
    edit_tensors(folder / "prefix", lambda tensors: tensors.pop(name))
    with pytest.raises(CheckpointError, match=f"found: no {name}"):
        load_model(folder)


@pytest.mark.parametrize("content", ["{}", "[]", '{"weight_map": 3}', '{"weight_map": {"a": 3}}'])
def test_a_list_of_files_that_is_none_is_told(content: str, tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path, architecture="llama")
    (folder / "prefix" / "model.safetensors").unlink()
    (folder / "prefix" / "model.safetensors.index.json").write_text(content)
    with pytest.raises(CheckpointError, match="must be safetensors of a kind"):
        load_model(folder)


@pytest.mark.parametrize(
    "change",
    [
        {"num_attention_heads": None},
        {"num_attention_heads": 8},
        {"num_hidden_layers": "two"},
        {"max_position_embeddings": None},
        {"rope_parameters": [1]},
    ],
)
def test_a_config_that_does_not_fit_is_told(change: dict[str, Any], tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path, architecture="llama")
    path = folder / "prefix" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | change))
    with pytest.raises(CheckpointError, match="must be safetensors of a kind"):
        load_model(folder)


SIZES: dict[str, Any] = {
    "vocab_size": 120,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (MistralConfig, {"sliding_window": 12}),
        (MistralConfig, {"sliding_window": None}),
        (Gemma2Config, {"head_dim": 8, "sliding_window": 12, "attn_logit_softcapping": 2.0}),
        (BloomConfig, {"n_layer": 2, "n_head": 4}),
    ],
)
def test_attention_of_another_kind_is_refused_and_windows_are_kept(
    kind: type[PreTrainedConfig], settings: dict[str, Any]
) -> None:
    sizes = SIZES if kind is not BloomConfig else {"vocab_size": 120, "hidden_size": 32}
    torch.manual_seed(0)
    plain = AutoModelForCausalLM.from_config(kind(**(sizes | settings))).eval()
    if kind is not MistralConfig:
        with pytest.raises(CheckpointError, match="must have plain causal attention"):
            CausalModules(plain)
        return
    ids = torch.arange(12) + 3
    with torch.inference_mode():
        wanted = plain(ids[None], use_cache=False).logits[0]
    encoder = PrefixEncoder(CausalModules(plain), query_projection=None, begin_token_id=None)
    assert encoder.max_positions == (settings["sliding_window"] or 64)
    states = encoder.append(encoder.new_cache(batch=1, capacity=4), [ids.tolist()])
    torch.testing.assert_close(encoder.token_logits(states), wanted, atol=1e-4, rtol=1e-4)


def test_norms_of_old_names_are_read_all_the_same(tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path, architecture="llama")
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}

    def rename(tensors: Weights) -> None:
        for name in list(tensors):
            for new_end, old_end in old.items():
                if name.endswith(new_end):
                    tensors[name.replace(new_end, old_end)] = tensors.pop(name)

    texts = ["The old mill stands on the river."]
    read = load_model(folder).retriever.encode_texts(texts)
    edit_tensors(folder / "phrase", rename)
    assert read_form(folder / "phrase") is not None
    np.testing.assert_allclose(load_model(folder).retriever.encode_texts(texts), read, atol=1e-6)


def test_a_tied_head_that_is_stored_need_not_be_trained(tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path, architecture="llama")
    whole: Weights = {}

    def store_head(tensors: Weights) -> None:
        whole.update({f"lm.{name}": 2 * tensor for name, tensor in tensors.items()})
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()

    edit_tensors(folder / "prefix", store_head)
    weights = load_file(folder / "weights.safetensors")
    kept = {name: each for name, each in weights.items() if not name.startswith("lm.")}
    save_file(kept | whole, folder / "weights.safetensors")
    plain, modules = (load_model(folder, keeps_modules=each) for each in (False, True))
    assert isinstance(plain.prefix_encoder.network, LlamaNetwork)
    found, wanted = (
        each.prefix_encoder.token_logits(
            each.prefix_encoder.append(each.prefix_encoder.new_cache(batch=1, capacity=4), IDS[:1])
        )
        for each in (plain, modules)
    )
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)


def edit_tensors(base: Path, edit: Callable[[Weights], object]) -> None:
    tensors = load_file(base / "model.safetensors")
    edit(tensors)
    save_file(tensors, base / "model.safetensors", metadata={"format": "pt"})


def test_a_known_model_is_loaded_without_transformers(tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path, architecture="llama")
    code = (
        "import sys; from pathlib import Path; from cog.model.load import *; "
        "load_model(Path(sys.argv[1])); load_index_model(Path(sys.argv[1])); "
        "print('transformers' in sys.modules)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "False"
