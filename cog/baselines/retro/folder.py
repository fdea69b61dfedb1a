"""A trained adapter at rest: a folder with its sizes, its weights and the model it belongs to."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from cog.atomic import replacing, share, write_text_atomically
from cog.baselines.retro.adapter import RetroAdapter
from cog.baselines.retro.config import RetroConfig
from cog.corpus.documents import find_documents_digest
from cog.errors import CheckpointError
from cog.index.read.reader import PhraseIndex, open_index
from cog.index.versions.unions import split_union
from cog.model.fingerprint import fingerprint_model
from cog.params import Params
from cog.paths import ProjectPaths
from cog.reading import Text, read_record

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "adapter.safetensors"
FORMAT_VERSION = 3  # 2: the continuation of a neighbour was the beginning of the next chunk
RUN = "cog paper retro train --corpus ID"


@dataclass(frozen=True, slots=True)
class AdapterRecord:
    """What an adapter's folder says of it."""

    format_version: int
    model: Text  # fingerprint of the model it was fitted to, its retriever included
    config: RetroConfig
    training: dict[str, Any]  # what it was trained on, and for how long; plain values


def save_adapter(
    folder: Path, adapter: RetroAdapter, *, model: str, training: dict[str, Any]
) -> None:
    """Write an adapter; what else lies in the folder stays.

    Replacing the config is the moment from which it can be loaded; weights of an adapter of the
    same sizes may be replaced before.
    """
    folder.mkdir(parents=True, exist_ok=True)
    weights = {
        name: value.detach().to("cpu", torch.float16).contiguous()
        for name, value in adapter.state_dict().items()
    }
    with replacing(folder / WEIGHTS_FILE) as unfinished:
        save_file(weights, unfinished)
        share(unfinished)
    record = AdapterRecord(FORMAT_VERSION, model, adapter.config, training)
    write_text_atomically(folder / CONFIG_FILE, json.dumps(asdict(record), indent=2) + "\n")


def load_record(folder: Path, *, model: str) -> AdapterRecord:
    """Read what an adapter is, and hold it against the model."""
    name = f"{folder.parent.name}/{folder.name}"
    try:
        content = json.loads((folder / CONFIG_FILE).read_bytes())
        version = content["format_version"] if isinstance(content, dict) else None
    except FileNotFoundError:
        raise CheckpointError(
            f"the system retro needs an adapter in {name}",
            found="none" if folder.is_dir() else "no such folder",
            run=RUN,
            about=str(folder),
        ) from None
    except (ValueError, KeyError, OSError) as error:
        raise CheckpointError(
            f"{name}/{CONFIG_FILE} must describe an adapter",
            found=str(error),
            run=f"remove {name}, then {RUN}",
        ) from error
    if version != FORMAT_VERSION:
        raise CheckpointError(
            f"the adapter {name} must be of format version {FORMAT_VERSION}",
            found=str(version),
            run=f"remove {name}, then {RUN}",
            about=str(folder),
        )
    record = read_record(
        AdapterRecord,
        content,
        error=CheckpointError,
        file=f"{name}/{CONFIG_FILE}",
        run=f"remove {name}, then {RUN}",
    )
    if record.model != model:
        raise CheckpointError(
            f"the adapter {name} must be fitted to model {model:.16} and its retriever",
            found=f"fitted to model {record.model:.16}, on corpus {record.training.get('corpus')}",
            run=f"remove {name}, then {RUN}; or set the other model in params.yaml",
            about=str(folder),
        )
    return record


def load_adapter(folder: Path, *, model: str) -> RetroAdapter:
    """Load an adapter in float32; refused are one that is damaged and one of another model."""
    record = load_record(folder, model=model)
    try:
        adapter = RetroAdapter(record.config)
        weights = load_file(folder / WEIGHTS_FILE)
        adapter.load_state_dict({name: value.float() for name, value in weights.items()})
    except Exception as error:  # torch and safetensors raise many kinds
        raise _unreadable(folder, error) from error
    return adapter.eval()


def digest_adapter(folder: Path, record: AdapterRecord) -> str:
    """Digest what decides an adapter's texts, sizes and weights: 64 hex digits."""
    digest = hashlib.sha256(json.dumps(asdict(record.config), sort_keys=True).encode())
    try:
        with (folder / WEIGHTS_FILE).open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    except OSError as error:
        raise _unreadable(folder, error) from error
    return digest.hexdigest()


def _unreadable(folder: Path, error: Exception) -> CheckpointError:
    return CheckpointError(
        f"{folder.name}/{WEIGHTS_FILE} must hold the adapter's weights",
        found=str(error).partition("\n")[0] or type(error).__name__,
        run=f"remove {folder.parent.name}/{folder.name}, then {RUN}",
        about=str(folder),
    )


ADAPTER_FOLDER = Path("models", "retro")


def get_adapter_folder(paths: ProjectPaths, corpus_id: str) -> Path:
    """Where the adapter of the system ``retro`` lies: the corpus's own, or that of all."""
    own = paths.corpus(corpus_id).retro
    return own if (own / CONFIG_FILE).is_file() else paths.root / ADAPTER_FOLDER


@contextmanager
def open_retro_index(paths: ProjectPaths, params: Params, corpus_id: str) -> Iterator[PhraseIndex]:
    """Open the index that neighbours come from, held against the model and the documents."""
    with open_index(
        *map(paths.corpus, split_union(corpus_id)),
        model_fingerprint=fingerprint_model(paths.model(params.model)),
        documents_digest_of=find_documents_digest,
    ) as index:
        yield index
