"""A base model as it lies in its folder: the folder goes in, its config and its tensors come out.

What the project reads by itself, without transformers, whose import takes longer than everything
else that generating a text needs to begin.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
SHARDS_FILE = "model.safetensors.index.json"


@dataclass(frozen=True, slots=True)
class BaseForm:
    """A base model that nothing was made of yet; its tensors are mapped into memory as stored."""

    folder: Path
    config: Mapping[str, Any]
    tensors: Mapping[str, Tensor]

    def has_sizes(self, *names: str) -> bool:
        """Whether all of these values of the config are whole numbers from 1 on."""
        return all(type(size := self.config.get(name)) is int and size > 0 for name in names)


def read_form(folder: Path) -> BaseForm | None:
    """Read a base model's folder as ``save_pretrained`` of transformers writes it.

    None if something is missing or damaged, which transformers will tell.
    """
    try:
        config = json.loads((folder / CONFIG_FILE).read_bytes())
        tensors = {
            name: tensor
            for path in _list_files(folder)
            for name, tensor in iter_tensors(path)
            if tensor.is_floating_point()  # old ones hold counts from 0 on, too
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError):
        return None
    is_plain = isinstance(config, dict) and "quantization_config" not in config
    return BaseForm(folder, config, tensors) if is_plain else None


def _list_files(folder: Path) -> list[Path]:
    if (folder / WEIGHTS_FILE).is_file():
        return [folder / WEIGHTS_FILE]
    names = json.loads((folder / SHARDS_FILE).read_bytes())["weight_map"].values()
    return [folder / name for name in sorted(set(names))]


def iter_tensors(path: Path) -> Iterator[tuple[str, Tensor]]:
    """Read a safetensors file, whose tensors are mapped into memory as stored."""
    with safe_open(path, framework="pt") as file:
        for name in file.keys():  # noqa: SIM118 - safe_open is no mapping
            yield name, file.get_tensor(name)
