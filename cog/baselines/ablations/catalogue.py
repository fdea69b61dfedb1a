"""Ablations by name: what each changes of CoG is told; nothing is loaded here."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cog.records import OFF

TOKENS = "cog-tokens"
PHRASES = "cog-phrases"
UNSUMMED = "cog-unsummed"
PROMPT_PHRASES = "cog-prompt-phrases"
NUMBERS_OF_CHUNKS = (1, 4, 16, 64, 256, 1024)


@dataclass(frozen=True, slots=True)
class Ablation:
    """CoG with one thing changed.

    :param name: The system's name.
    :param change: What is changed, as a clause.
    :param settings: The settings of decoding that make the change; empty where code does.
    :param scores_references: Whether the likelihood of a reference under it is defined and not that
        of CoG.
    """

    name: str
    change: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    scores_references: bool = False


_KINDS = (
    Ablation(TOKENS, "nothing is copied", {"top_k_documents": 0}, scores_references=True),
    Ablation(PHRASES, "the vocabulary only where no phrase is admissible"),
    Ablation(UNSUMMED, "occurrences of one text are choices of their own"),
    Ablation(PROMPT_PHRASES, "the prompt's own phrases are candidates too", scores_references=True),
)
_SETTINGS = (
    ("cog-unverified", "what was chosen is written", {"verify": OFF, "verify_threshold": 0.0}),
    ("cog-no-spans", "a draft ends with its phrase", {"span_words": 0}),
    ("cog-any-phrase", "phrases need no informative word", {"min_bits": 0.0}),
    ("cog-repeats", "words may be copied twice", {"copy_once": False}),
    ("cog-no-relevance", "similarity does not count", {"relevance_weight": 0.0}),
    ("cog-any-names", "any document brings names", {"guard_names": False}),
    ("cog-no-first-token", "how a phrase begins does not count", {"first_token_weight": 0.0}),
    ("cog-no-context", "what stands before counts not", {"context_weight": 0.0, "trust": 0.0}),
    ("cog-no-trust", "agreement earns no trust", {"trust": 0.0}),
)
# those of them that change the distribution of a choice, which is what a reference is scored by
_SCORED = ("cog-any-phrase", "cog-no-relevance", "cog-no-first-token", "cog-no-context")
_OTHERS = tuple(
    Ablation(name, change, settings, scores_references=name in _SCORED)
    for name, change, settings in _SETTINGS
)
_NUMBERS = tuple(
    Ablation(
        f"cog-k{count}",
        f"{count} chunk{'s' * (count > 1)} retrieved",
        {"top_k_documents": count},
        scores_references=True,
    )
    for count in NUMBERS_OF_CHUNKS
)
ABLATIONS = {ablation.name: ablation for ablation in (*_KINDS, *_OTHERS, *_NUMBERS)}
