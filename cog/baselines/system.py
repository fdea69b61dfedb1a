"""What is run: names of systems, and the record that identifies one; nothing is loaded here."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Annotated, Any

from cog.reading import Count, OneOf, PositiveFactor, Share
from cog.records import DECODER_VERSION, OFF, Decoding

COG = "cog"
TRANSFORMER = "transformer"
TUNED_TRANSFORMER = "transformer-ft"
KNN_LM = "knn-lm"
RETRO = "retro"
IN_CONTEXT = "in-context"
BASELINES = (TRANSFORMER, TUNED_TRANSFORMER, KNN_LM, RETRO, IN_CONTEXT)
PHRASES = "cog-phrases"
UNSUMMED = "cog-unsummed"
# CoG with a part of its code changed, and the change as a clause
VARIANTS = {
    PHRASES: "the vocabulary only where no phrase is admissible",
    UNSUMMED: "occurrences of one text are choices of their own",
}
# CoG under other settings: a short name, the change as a clause, the settings
_SETTINGS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("cog-tokens", "nothing is copied", {"top_k_documents": 0}),
    ("cog-unverified", "what was chosen is written", {"verify": OFF, "far_ratio": 0.0}),
    ("cog-no-spans", "a draft ends with its phrase", {"span_words": 0}),
    ("cog-any-phrase", "phrases need no informative word", {"min_bits": 0.0}),
    ("cog-repeats", "words may be copied twice", {"copy_once": False}),
    ("cog-no-relevance", "similarity does not count", {"relevance_weight": 0.0}),
    ("cog-any-names", "any document brings names", {"guard_names": False}),
    ("cog-no-first-token", "how a phrase begins does not count", {"first_token_weight": 0.0}),
    ("cog-no-context", "what stands before counts not", {"context_weight": 0.0, "trust": 0.0}),
    ("cog-no-trust", "agreement earns no trust", {"trust": 0.0}),
    *(
        (f"cog-k{count}", f"{count} chunk{'s' * (count > 1)} retrieved", {"top_k_documents": count})
        for count in (1, 4, 16, 64, 256, 1024)
    ),
)
ABLATIONS = {name: settings for name, _, settings in _SETTINGS}
# the settings under which CoG writes what the Transformer does, token for token
PLAIN = {"top_k_documents": 0, "verify": OFF, "no_repeat_ngram": 0}
CHANGES = VARIANTS | {name: change for name, change, _ in _SETTINGS}
COPYING = (COG, *VARIANTS)
SYSTEMS = (COG, *BASELINES, *VARIANTS, *ABLATIONS)

SMOKE_STEPS = 1000  # a model that was trained for fewer shows that the code runs, and nothing else
IN_CONTEXT_CHUNKS = 4  # before the prompt, unless asked otherwise
PROTOCOL_SETTINGS = ("seed", "max_new_tokens")  # of a decoding; they belong to the measurement
NEAREST_LAST, NEAREST_FIRST = "nearest-last", "nearest-first"  # chunks before a prompt
_CHOICE = ("method", "top_p", "temperature")
_VOCABULARY = (*_CHOICE, "top_k_documents", "verify", "verify_threshold", "no_repeat_ngram")
# settings that the likelihood of a reference depends on, since nothing is drawn or verified
_LIKELIHOOD = (
    "top_k_documents",
    "phrase_bias",
    "pool_bias",
    "min_bits",
    "relevance_weight",
    "relevance_level",
    "guard_names",
    "first_token_weight",
    "context_weight",
)


@dataclass(frozen=True, slots=True)
class BaselineOptions:
    """Settings of baselines beyond those of decoding, as they are tuned; None for the usual one.

    Those of kNN-LM are of section ``datastore``; ``placement`` is that of in-context retrieval.
    """

    top_k: Count | None = None
    weight: Share | None = None
    distance_scale: PositiveFactor | None = None
    placement: Annotated[str, OneOf((NEAREST_LAST, NEAREST_FIRST))] | None = None


@dataclass(frozen=True, slots=True)
class System:
    """What was run; every setting that it uses and none that it does not."""

    name: str  # `cog`, a baseline, or one of VARIANTS
    corpus: str  # that is copied from or searched, or that texts are written for
    decoding: Decoding  # what the system does not use has its default
    options: dict[str, Any] = field(default_factory=dict)  # beyond those of decoding, of kNN-LM say
    index: str = ""  # digest of what is copied from or searched; empty for nothing
    documents: str = ""  # digest of the documents behind that; empty for nothing
    model: str = ""  # fingerprint of the model, an adapter's digest with it
    num_index_words: int = 0
    training_steps: int | None = None  # None where it is not stated
    precision: str = "float32"
    device: str = "cpu"  # or `cuda`: they round differently
    decoder: int = DECODER_VERSION  # texts of an older one are written anew

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that it uses, by name."""
        used = list_used(self.name, self.decoding)
        return {name: getattr(self.decoding, name) for name in used} | self.options

    @property
    def is_smoke(self) -> bool:
        """Whether it was trained too little to say anything about its kind."""
        return self.training_steps is not None and self.training_steps < SMOKE_STEPS

    @property
    def digest(self) -> str:
        """Digest of what decides its texts: 16 hex digits."""
        return self._digest(self.settings)

    @property
    def likelihood_digest(self) -> str:
        """Digest of what decides how likely it finds a text: 16 hex digits."""
        used = {name: value for name, value in self.settings.items() if name in _LIKELIHOOD}
        return self._digest(used | self.options)

    def _digest(self, settings: dict[str, Any]) -> str:
        content = {name: value for name, value in self.to_json().items() if name not in _STATED}
        written = json.dumps(content | {"settings": settings}, sort_keys=True)
        return hashlib.sha256(written.encode()).hexdigest()[:16]

    def to_json(self) -> dict[str, Any]:
        """The system as plain values."""
        content = {each.name: getattr(self, each.name) for each in fields(self)}
        del content["options"], content["decoding"]
        return content | {"settings": self.settings}

    def __str__(self) -> str:
        return self.name + (" (smoke)" if self.is_smoke else "")


_STATED = ("documents", "num_index_words", "training_steps", "settings")  # follow from the rest


def parse_system(content: dict[str, Any]) -> System:
    """Read a system as :meth:`System.to_json` writes it."""
    values = dict(content)
    decoding, options = split_settings(values.pop("settings"))
    return System(decoding=Decoding(**decoding), options=options, **values)


def split_settings(settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings of a system that are those of decoding, and its other options."""
    known = {each.name for each in fields(Decoding)}
    decoding = {name: value for name, value in settings.items() if name in known}
    return decoding, {name: value for name, value in settings.items() if name not in known}


def list_used(name: str, decoding: Decoding) -> tuple[str, ...]:
    """Name the settings of a decoding that a system uses; some are used under others only.

    Seed and length belong to the measurement.
    """
    if name == IN_CONTEXT:
        used = {*_CHOICE, "top_k_documents"}
    elif name not in COPYING:
        used = set(_CHOICE)
    elif decoding.top_k_documents:
        used = {each.name for each in fields(Decoding)} - set(PROTOCOL_SETTINGS)
    else:
        used = set(_VOCABULARY)
    if decoding.method == "greedy":
        used -= {"top_p", "temperature"}
    if not decoding.is_verified:
        used -= {"verify_threshold", "trust"}
    if not decoding.span_words:
        used -= {"span_ratio"}
    if not decoding.far_ratio:
        used -= {"far_ratio"}
    if not (decoding.relevance_weight or decoding.guard_names or decoding.far_ratio):
        used -= {"relevance_level"}
    return tuple(each.name for each in fields(Decoding) if each.name in used)


def take_used(name: str, decoding: Decoding) -> Decoding:
    """The settings that a system uses; all others have their defaults."""
    values = asdict(decoding)
    if not decoding.is_verified:
        values["verify"] = OFF
    return Decoding(**{each: values[each] for each in list_used(name, decoding)})


def find_short_name(system: System, usual: Decoding) -> str:
    """The name by which ``--system`` means what was run: that of its settings, if they have one."""
    if system.name == COG:
        for name, settings in ABLATIONS.items():
            ran, plain = (
                [getattr(each, key) for key in settings] for each in (system.decoding, usual)
            )
            if ran == list(settings.values()) != plain:
                return name
    return system.name


def resolve_system(name: str, decoding: Decoding) -> tuple[str, Decoding]:
    """Turn a short name of settings into the system that it stands for."""
    if name in ABLATIONS:
        return COG, replace(decoding, **ABLATIONS[name])
    return name, decoding
