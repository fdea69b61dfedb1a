"""The model's config: ``config.yaml`` goes in, a checked record comes out (no torch)."""

import shlex
from dataclasses import asdict, dataclass
from pathlib import Path

import yaml

from cog.errors import CheckpointError
from cog.paths import PACKAGE_DATA, get_shipped
from cog.profiles import Base
from cog.reading import Count, Natural, read_record
from cog.yaml_file import open_yaml

CONFIG_FILE = "config.yaml"
FORMAT_VERSION = 1
BATCH_PHRASES = 80_000  # what models hold whose config does not say it


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """What a trained model is made of."""

    format_version: int  # of this file's form
    name: str
    weights: tuple[str, ...]  # safetensors files below the model folder
    prefix_base: Base
    begin_token_id: Natural | None  # token put before every prefix; None for none
    lora_scale: float  # factor of `B A` where the weights hold LoRA pairs
    phrase_base: Base
    max_pieces: Count  # WordPieces of a chunk that the phrase encoder reads, special ones aside
    retriever_base: Base
    max_chunk_tokens: Count  # prefix-encoder tokens of a chunk, at most
    min_chunk_tokens: Natural  # the same, at least, where its document has as many
    min_phrase_words: Count
    max_phrase_words: Count
    # phrases that a training batch held, at which `phrase_bias` says what it says
    batch_phrases: Count = BATCH_PHRASES


def advise_on_damage(path: Path) -> str:
    """Name what brings a file of a model's folder back: git, or the package it came with."""
    installed = get_shipped()
    if installed.name == PACKAGE_DATA and path.resolve().is_relative_to(installed.resolve()):
        return "pip install --force-reinstall --no-deps copy-generator"
    return shlex.join(("git", "-C", str(path.parent), "checkout", "HEAD", "--", path.name))


def load_config(folder: Path) -> ModelConfig:
    """Read a model folder's config.

    Raises ``CheckpointError`` if the file is missing or malformed, or a key is unknown or missing.
    """
    path = folder / CONFIG_FILE
    try:
        file = open_yaml(path, name=CONFIG_FILE, error=CheckpointError)
    except FileNotFoundError:
        raise CheckpointError(
            f"the model folder {folder.name} must hold {CONFIG_FILE}",
            found="no such file" if folder.is_dir() else "no such folder",
            run="set `model:` in params.yaml to a model folder",
        ) from None
    content = file.content
    version = content.get("format_version") if isinstance(content, dict) else FORMAT_VERSION
    if version != FORMAT_VERSION:
        raise CheckpointError(
            f"{CONFIG_FILE} must have format_version {FORMAT_VERSION}",
            found=repr(version),
            run="use the version of cog that wrote the model",
        )
    return read_record(
        ModelConfig,
        content,
        error=CheckpointError,
        file=f"{folder.name}/{CONFIG_FILE}",
        find_line=file.find_line,
    )


def save_config(config: ModelConfig, folder: Path) -> None:
    """Write a model folder's config."""
    content = asdict(config) | {"weights": list(config.weights)}
    head = "# What the model is made of; every field is described in docs/model.md.\n"
    text = head + yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    (folder / CONFIG_FILE).write_text(text, encoding="utf-8")
