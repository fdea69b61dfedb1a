"""Requests of the tests: prefixes, the paper's settings, and settings with every rule on."""

from dataclasses import replace
from typing import Any

from cog.decoding.request import Request
from cog.records import Decoding

PREFIXES = [
    "The old mill stands",
    "On market days",
    " the river",
    "Bread is made from flour, water and",
    "A",
]
RULES: dict[str, Any] = {  # all that the paper does not have, weak enough for a random model
    "phrase_bias": 2.0,
    "verify": "absolute",
    "verify_threshold": 0.0003,
    "span_words": 16,
    "span_ratio": 0.001,
    "min_bits": 20.0,
    "copy_once": True,
    "relevance_weight": 5.0,
    "relevance_level": 0.5,
    "guard_names": True,
    "first_token_weight": 0.3,
    "context_weight": 1.0,
    "trust": 1.0,
    "no_repeat_ngram": 6,
}


def decoding(**changes: Any) -> Decoding:  # noqa: ANN401
    """The paper's settings, but some."""
    return replace(Decoding("nucleus", 0.95, 0, 24, 16, 0.0), **changes)


def ask(num_seeds: int = 1, **changes: Any) -> list[Request]:  # noqa: ANN401
    """A request for every prefix and seed."""
    return [
        Request(prefix, decoding(seed=seed, **changes))
        for prefix in PREFIXES
        for seed in range(num_seeds)
    ]


SETTINGS: dict[str, dict[str, Any]] = {
    "paper": {},
    "paper-greedy": {"method": "greedy"},
    "biased": {"phrase_bias": 5.0},
    "verified": {"phrase_bias": 5.0, "verify": "absolute", "verify_threshold": 0.003},
    "spans": {"phrase_bias": 3.0, "span_words": 16},
    "spans-verified": {**RULES, "guard_names": False, "min_bits": 0.0},
    "all": RULES,
    "far": {**RULES, "far_ratio": 0.03, "relevance_level": 1.0, "phrase_bias": 5.0},
    "all-greedy": {**RULES, "method": "greedy"},
    "all-few": {**RULES, "top_k_documents": 2, "guard_names": False},
    "limited": {"phrase_bias": 5.0, "span_words": 16, "max_verbatim_words": 4},
}
