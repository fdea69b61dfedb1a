"""What tuning tries: a system's name goes in, its settings and the values of each come out.

What is retrieved is chosen by the likelihood of references, which is the primary score and what the
papers of these baselines tune by; how a text is written, by the texts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cog.baselines.system import (
    COG,
    IN_CONTEXT,
    KNN_LM,
    NEAREST_FIRST,
    NEAREST_LAST,
    RETRO,
    TRANSFORMER,
    TUNED_TRANSFORMER,
)
from cog.records import ABSOLUTE, ENTROPY, NUCLEUS, OFF, RELATIVE

Values = Mapping[str, Any]
Step = tuple[Values, ...]  # values that are tried with the best of the steps before
BUDGET = 30  # trials, the same for every system


@dataclass(frozen=True, slots=True)
class Phase:
    """Settings that are chosen by one rating."""

    steps: tuple[Step, ...]
    is_by_texts: bool = True  # texts are rated; else the likelihood of references is


def _each(name: str, *values: Any) -> Step:  # noqa: ANN401
    return tuple({name: value} for value in values)


_VERIFY = (
    (OFF, 0.0),
    *((ABSOLUTE, threshold) for threshold in (0.0001, 0.0002, 0.0003)),
    (RELATIVE, 0.001),
    (ENTROPY, 0.001),
)
_COPIES = (
    _each("phrase_bias", 3.0, 4.0, 5.0, 6.0),
    _each("relevance_weight", 10.0, 20.0, 30.0),
    _each("relevance_level", 0.55, 0.6, 0.65),
    _each("top_k_documents", 64, 128, 256),
    _each("min_bits", 20.0, 30.0, 40.0),
    _each("far_ratio", 0.0, 0.4, 1.0),
    _each("span_ratio", 0.0003, 0.001, 0.003),
    tuple({"verify": rule, "verify_threshold": threshold} for rule, threshold in _VERIFY),
)
_NEIGHBOURS = (
    _each("top_k", 16, 64, 256, 1024),
    _each("distance_scale", 0.0005, 0.002, 0.008, 0.03, 0.1),
    _each("weight", 0.0, 0.01, 0.05, 0.1, 0.2, 0.4),  # 0: the model alone
)
_CHUNKS = (
    _each("top_k_documents", 1, 2, 4, 8, 16),
    _each("placement", NEAREST_LAST, NEAREST_FIRST),
)
_DRAW = (  # greedy takes the best choice at any temperature
    _each("temperature", 0.7, 0.8, 0.9, 1.0, 1.1),
    _each("top_p", 0.8, 0.9, 0.95, 0.98),
)
_PHASES: dict[str, tuple[Phase, ...]] = {
    COG: (Phase(_COPIES),),
    TRANSFORMER: (),
    TUNED_TRANSFORMER: (),
    RETRO: (),
    KNN_LM: (Phase(_NEIGHBOURS, is_by_texts=False),),
    IN_CONTEXT: (Phase(_CHUNKS, is_by_texts=False),),
}


def list_phases(system: str, method: str) -> tuple[Phase, ...]:
    """What is tried for a system; nothing if it has no setting that this method uses."""
    phases = _PHASES[system]
    if method != NUCLEUS:
        return phases
    if system == COG:
        return (Phase(phases[0].steps + _DRAW),)
    return (*phases, Phase(_DRAW))
