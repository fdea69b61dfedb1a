"""Settings of decoding as callers give them: names and values go in, checked settings come out.

Neither torch nor a store is loaded here.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, TypedDict

from cog.decoding.tuning import USUAL_THRESHOLDS, apply_tuning
from cog.params import Params
from cog.paths import CorpusPaths
from cog.reading import FieldError, read_field
from cog.records import ABSOLUTE, OFF, Active, Decoding

METHOD = "decoding"  # what params.yaml, options and callers call it
LEAST = "min_token_probability"


class Settings(TypedDict, total=False):
    """How a text is written: the fields of :class:`~cog.records.Decoding`, and one short form.

    ``min_token_probability=P`` is ``verify="absolute", verify_threshold=P``.
    """

    decoding: Literal["greedy", "nucleus"]
    top_p: float
    seed: int
    max_new_tokens: int
    top_k_documents: int
    phrase_bias: float
    verify: Literal["off", "absolute", "relative", "entropy"]
    verify_threshold: float
    min_token_probability: float
    temperature: float
    max_verbatim_words: int
    pool_bias: bool
    span_words: int
    span_ratio: float
    far_ratio: float
    min_bits: float
    copy_once: bool
    relevance_weight: float
    relevance_level: float
    guard_names: bool
    first_token_weight: float
    context_weight: float
    trust: float
    no_repeat_ngram: int


def choose_settings(
    settings: Decoding,
    corpus_paths: CorpusPaths,
    given: Mapping[str, Any],
    *,
    is_untuned: bool,
    active: Active | None = None,
) -> tuple[Decoding, str]:
    """The settings of a text: what is given, else what was tuned for the index, else params.yaml.

    What is given is by name, as in :class:`Settings`; ``active`` is what is copied from, None for
    the index in place. Second comes a line on what was tuned. An unknown name, or a value that
    cannot be used, is a ``FieldError``.
    """
    word = ""
    if not is_untuned:
        method = given.get(METHOD, settings.method)
        settings, word = apply_tuning(settings, corpus_paths, method=method, active=active)
    return override_settings(settings, given), word


def override_settings(settings: Decoding, given: Mapping[str, Any]) -> Decoding:
    """Put what is given in the place of other settings; a rule brings its usual threshold.

    An unknown name, a value that cannot be used, or two that contradict each other are a
    ``FieldError``.
    """
    changes: dict[str, Any] = {}
    for name, value in given.items():
        if name == LEAST:
            if "verify" in given or "verify_threshold" in given:
                raise FieldError(LEAST, wanted="goes without verify and verify_threshold")
            least = read_field(Decoding, "span_ratio", value)  # a share too
            changes |= {"verify": ABSOLUTE if least else OFF, "verify_threshold": least}
        else:
            field = "method" if name == METHOD else name
            changes[field] = read_field(Decoding, field, value)
    rule, threshold = changes.get("verify", settings.verify), changes.get("verify_threshold")
    if threshold is None and rule != settings.verify:
        changes["verify_threshold"] = USUAL_THRESHOLDS[rule]
    elif threshold and rule == OFF:
        rules = "absolute, relative or entropy"
        raise FieldError("verify_threshold", wanted=f"needs verify to be {rules}", found=OFF)
    return replace(settings, **changes)


def set_precision(params: Params, precision: str | None) -> Params:
    """Put another precision in the place of that of params.yaml; None leaves it."""
    if precision is None:
        return params
    chosen = read_field(type(params.generate), "precision", precision)
    return replace(params, generate=replace(params.generate, precision=chosen))
