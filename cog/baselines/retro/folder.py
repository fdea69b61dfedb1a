"""A trained adapter at rest: a folder with its sizes, its weights and the model it belongs to."""

import hashlib
import json
import shutil
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from cog.baselines.retro.adapter import RetroAdapter, RetroConfig
from cog.errors import CheckpointError

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "adapter.safetensors"
FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class AdapterRecord:
    """What an adapter's folder says of it.

    :param format_version: Version of the folder.
    :param model: Fingerprint of the model it was fitted to.
    :param config: Its sizes.
    :param training: What it was trained on, and for how long; plain values.
    """

    format_version: int
    model: str
    config: RetroConfig
    training: dict[str, Any]


def save_adapter(
    folder: Path, adapter: RetroAdapter, *, model: str, training: dict[str, Any]
) -> None:
    """Write an adapter; a killed write leaves what was there.

    :param folder: Where to.
    :param adapter: The adapter.
    :param model: Fingerprint of the model it was fitted to.
    :param training: What it was trained on.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}-"))
    try:
        weights = {
            name: value.detach().to("cpu", torch.float16).contiguous()
            for name, value in adapter.state_dict().items()
        }
        save_file(weights, building / WEIGHTS_FILE)
        record = AdapterRecord(FORMAT_VERSION, model, adapter.config, training)
        text = json.dumps(asdict(record), indent=2) + "\n"
        (building / CONFIG_FILE).write_text(text, encoding="utf-8")
        building.chmod(0o755)
        if folder.exists():
            shutil.rmtree(folder)
        building.rename(folder)
    finally:
        shutil.rmtree(building, ignore_errors=True)


def load_record(folder: Path, *, model: str) -> AdapterRecord:
    """Read what an adapter is, and hold it against the model.

    :param folder: Its folder.
    :param model: Fingerprint of the model it is to be used with.
    :returns: The record.
    :raises CheckpointError: If there is none, it is damaged, or it was fitted to another model.
    """
    run = "cog retro train --corpus <id>"
    try:
        content = json.loads((folder / CONFIG_FILE).read_bytes())
        config = RetroConfig(
            **{**content["config"], "cross_layers": tuple(content["config"]["cross_layers"])}
        )
        record = AdapterRecord(**{**content, "config": config})
    except FileNotFoundError:
        raise CheckpointError(
            f"the system retro needs an adapter in {folder.parent.name}/{folder.name}",
            found="no such folder",
            run=run,
            about=str(folder),
        ) from None
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise CheckpointError(
            f"{folder.name}/{CONFIG_FILE} must describe an adapter", found=str(error), run=run
        ) from error
    for wanted, found, what in (
        (FORMAT_VERSION, record.format_version, "format version"),
        (model, record.model, "model"),
    ):
        if wanted != found:
            raise CheckpointError(
                f"the adapter {folder.name} must be of {what} {wanted!s:.16}",
                found=f"{found!s:.16}",
                run=run,
                about=str(folder),
            )
    return record


def load_adapter(folder: Path, *, model: str) -> RetroAdapter:
    """Load an adapter.

    :param folder: Its folder.
    :param model: Fingerprint of the model it is to be used with.
    :returns: The adapter, in float32.
    :raises CheckpointError: If there is none, it is damaged, or it was fitted to another model.
    """
    record = load_record(folder, model=model)
    adapter = RetroAdapter(record.config)
    try:
        weights = load_file(folder / WEIGHTS_FILE)
        adapter.load_state_dict({name: value.float() for name, value in weights.items()})
    except (OSError, RuntimeError, ValueError) as error:
        raise CheckpointError(
            f"{folder.name}/{WEIGHTS_FILE} must hold the adapter's weights",
            found=str(error).splitlines()[0],
            run="cog retro train --corpus <id>",
        ) from error
    return adapter.eval()


def digest_adapter(folder: Path) -> str:
    """Digest what decides an adapter's texts.

    :param folder: Its folder.
    :returns: 64 hex digits over config and weights.
    """
    digest = hashlib.sha256()
    for name in (CONFIG_FILE, WEIGHTS_FILE):
        with (folder / name).open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
