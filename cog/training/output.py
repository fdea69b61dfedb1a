"""The model folder: trained weights go in, safetensors shards, config and card come out."""

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from cog.model.config import ModelConfig, save_config
from cog.model.fingerprint import fingerprint_model
from cog.model.weights import Weights

MAX_SHARD_BYTES = 14 << 20


def write_model(
    folder: Path, weights: Weights, config: ModelConfig, facts: Mapping[str, str]
) -> str:
    """Write a model folder; a killed process leaves the old files.

    :param folder: The folder; what else lies in it stays.
    :param weights: Trained weights by name; stored in half precision.
    :param config: Its config; names of the weights files are filled in.
    :param facts: Lines of the card.
    :returns: The model's fingerprint.
    """
    unfinished = folder.parent / f".{folder.name}~model"  # as deep as its place: paths hold
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    folder.mkdir(parents=True, exist_ok=True)
    names = []
    for number, shard in enumerate(_split(weights)):
        names.append(f"model-{number:02d}.safetensors")
        save_file(shard, unfinished / names[-1])
    save_config(replace(config, weights=tuple(names)), unfinished)
    for name in [*names, "config.yaml"]:
        (unfinished / name).replace(folder / name)
    shutil.rmtree(unfinished)
    fingerprint = fingerprint_model(folder)
    lines = [f"# {folder.name}", "", *(f"- {name}: {value}" for name, value in facts.items())]
    lines.append(f"- fingerprint: {fingerprint}")
    (folder / "README.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return fingerprint


def _split(weights: Weights) -> list[dict[str, Tensor]]:
    shards: list[dict[str, Tensor]] = [{}]
    size = 0
    for name, tensor in weights.items():
        stored = tensor.detach().to(device="cpu", dtype=torch.float16).contiguous().clone()
        num_bytes = stored.numel() * 2
        if shards[-1] and size + num_bytes > MAX_SHARD_BYTES:
            shards.append({})
            size = 0
        shards[-1][name] = stored
        size += num_bytes
    return shards
