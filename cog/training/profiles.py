"""Profiles: one mapping of params.yaml goes in, what a model is made of and learns by comes out."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import isfinite
from typing import Any, TypeVar, get_args, get_type_hints

from cog.errors import CheckpointError, ParamsError
from cog.model.config import HubBase, WheelBase, read_base
from cog.model.random_base import BIDIRECTIONAL, CAUSAL, RandomBase

TrainingBase = WheelBase | HubBase | RandomBase
Record = TypeVar("Record")

CHOICES = {
    "phrase": ("joint", "factorised"),
    "candidates": ("batch", "source"),
    "positives": ("all", "first"),
    "neutrals": ("left-out", "wrong"),
    "weights": ("none", "labels", "surprise"),
}


@dataclass(frozen=True, slots=True)
class LossProfile:
    """Which losses a model learns by, ``token_weight * L_t + phrase_weight * L_p``.

    :param token_weight: Factor of the token loss.
    :param phrase_weight: Factor of the phrase loss.
    :param phrase: ``joint`` (the paper's) or ``factorised`` (the authors' code's).
    :param candidates: ``batch``, every span of the batch, or ``source``, those of the chunk of the
        right phrase (the paper's formula); for the joint loss.
    :param positives: ``all`` occurrences of the right phrase, or the ``first``.
    :param neutrals: ``left-out`` of the softmax, or ``wrong`` like any other candidate.
    :param weights: ``none``, ``labels`` (as segmentation weighs phrases, by whether they hold a
        content word) or ``surprise`` (that, times how little the token model expected the phrase).
    """

    token_weight: float
    phrase_weight: float
    phrase: str
    candidates: str
    positives: str
    neutrals: str
    weights: str


@dataclass(frozen=True, slots=True)
class RateProfile:
    """Learning rates at their highest.

    :param prefix: Of the prefix encoder.
    :param phrase: Of the phrase encoder.
    :param heads: Of the start and end heads.
    :param projection: Of ``W_q``.
    """

    prefix: float
    phrase: float
    heads: float
    projection: float


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """What a model is made of before it is trained.

    :param prefix_base: Base of the prefix encoder: a name, a wheel's member, or the sizes of a
        small one to be made.
    :param prefix_lora_rank: Rank of its low-rank updates; 0 trains every weight.
    :param phrase_base: Base of the phrase encoder.
    :param phrase_lora_rank: Rank of its low-rank updates; 0 trains every weight.
    :param train_word_embeddings: Whether the phrase encoder's word embeddings learn too where
        every weight is trained.
    :param retriever_base: Base of the document retriever, which is never trained.
    :param begin_token_id: Token put before every prefix; None for none.
    :param lora_scale: Factor of every low-rank update.
    :param query_projection: Whether phrases are asked for by ``W_q h`` instead of ``h``.
    :param head_width: Width between the two layers of a head.
    :param dropout: Dropped share of activations in both encoders.
    :param checkpoint_blocks: Whether activations inside blocks are computed again instead of kept:
        less memory, a third slower.
    :param compile_blocks: Whether blocks are compiled on a GPU.
    :param max_pieces: Number of WordPieces of a chunk that are read, special ones aside.
    :param max_chunk_tokens: Number of prefix-encoder tokens of a chunk, at most.
    :param min_chunk_tokens: The same, at least, where the document has as many.
    :param min_phrase_words: Number of words of a phrase, at least.
    :param max_phrase_words: The same, at most.
    :param losses: What it learns by.
    :param rates: How fast its parts learn.
    """

    prefix_base: TrainingBase
    prefix_lora_rank: int
    phrase_base: TrainingBase
    phrase_lora_rank: int
    train_word_embeddings: bool
    retriever_base: TrainingBase
    begin_token_id: int | None
    lora_scale: float
    query_projection: bool
    head_width: int
    dropout: float
    checkpoint_blocks: bool
    compile_blocks: bool
    max_pieces: int
    max_chunk_tokens: int
    min_chunk_tokens: int
    min_phrase_words: int
    max_phrase_words: int
    losses: LossProfile
    rates: RateProfile


def read_model_profile(content: object, *, where: str) -> ModelProfile:
    """Read the model part of a profile.

    :param content: What YAML gave.
    :param where: Its dotted path in params.yaml, for messages.
    :returns: The profile.
    :raises ParamsError: If a key is unknown or missing, or a value is of the wrong type or out of
        range.
    """
    values = _check_mapping(content, ModelProfile, where=where)
    for role in ("prefix_base", "phrase_base", "retriever_base"):
        known: tuple[str, ...] = CAUSAL if role == "prefix_base" else BIDIRECTIONAL
        values[role] = _read_training_base(values[role], where=f"{where}.{role}", known=known)
    values["losses"] = _read_record(values["losses"], LossProfile, where=f"{where}.losses")
    values["rates"] = _read_record(values["rates"], RateProfile, where=f"{where}.rates")
    profile = _convert(ModelProfile, values, where=where)
    for key, choices in CHOICES.items():
        if getattr(profile.losses, key) not in choices:
            raise ParamsError(
                f"{where}.losses.{key} must be one of {', '.join(choices)}",
                found=repr(getattr(profile.losses, key)),
                about=key,
            )
    if not 0 <= profile.dropout < 1:
        raise ParamsError(
            f"{where}.dropout must be from 0 to below 1", found=str(profile.dropout), about=where
        )
    if not 2 <= profile.min_phrase_words <= profile.max_phrase_words:
        raise ParamsError(
            f"{where} must have 2 <= min_phrase_words <= max_phrase_words",
            found=f"{profile.min_phrase_words} and {profile.max_phrase_words}",
            about=where,
        )
    return profile


def _read_training_base(content: object, *, where: str, known: tuple[str, ...]) -> TrainingBase:
    if isinstance(content, dict) and "architecture" in content:
        base = _read_record(content, RandomBase, where=where)
        _check_random_base(base, where=where, known=known)
        return base
    try:
        return read_base(content, where=where)
    except CheckpointError as error:
        raise ParamsError(
            f"{error.wanted} or {{{', '.join(f.name for f in fields(RandomBase))}}}",
            found=error.found,
            about=where,
        ) from None


def _check_random_base(base: RandomBase, *, where: str, known: tuple[str, ...]) -> None:
    if base.architecture not in known:
        raise ParamsError(
            f"{where}.architecture must be one of {', '.join(known)}",
            found=repr(base.architecture),
            about=where,
        )
    for name in ("width", "num_layers", "num_heads", "vocab_size", "max_positions"):
        if getattr(base, name) < 1:
            raise ParamsError(
                f"{where}.{name} must be above 0", found=str(getattr(base, name)), about=where
            )
    step = 2 * base.num_heads  # positions are told by pairs of numbers of each head
    if base.width % step:
        raise ParamsError(
            f"{where}.width must be a multiple of twice num_heads ({step})",
            found=str(base.width),
            about=where,
        )


def _read_record(content: object, kind: type[Record], *, where: str) -> Record:
    return _convert(kind, _check_mapping(content, kind, where=where), where=where)


def _check_mapping(content: object, kind: type[Any], *, where: str) -> dict[str, Any]:
    if not isinstance(content, Mapping):
        raise ParamsError(f"{where} must be a mapping", found=type(content).__name__, about=where)
    known = [field.name for field in fields(kind)]
    for key in content:
        if key not in known:
            nearest = difflib.get_close_matches(str(key), known, n=1, cutoff=0.0)[0]
            raise ParamsError(
                f"{where} has no key {key!r}", found=f"nearest known key {nearest!r}", about=where
            )
    for key in known:
        if key not in content:
            raise ParamsError(f"{where} needs the key {key!r}", found="no such key", about=where)
    return dict(content)


def _convert(kind: type[Record], values: dict[str, Any], *, where: str) -> Record:
    for name, wanted in get_type_hints(kind).items():
        value = values[name]
        if wanted is float and type(value) is int:
            values[name] = value = float(value)
        allowed = get_args(wanted) or (wanted,)
        if type(value) not in allowed:
            names = " or ".join(each.__name__ for each in allowed)
            raise ParamsError(f"{where}.{name} must be {names}", found=repr(value), about=where)
        if isinstance(value, float) and not isfinite(value):
            raise ParamsError(f"{where}.{name} must be finite", found=str(value), about=where)
        if isinstance(value, (int, float)) and value < 0:
            raise ParamsError(f"{where}.{name} must not be below 0", found=str(value), about=where)
    return kind(**values)
