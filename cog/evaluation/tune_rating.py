"""How good a trial of tuning is: what was measured goes in, a rating comes out.

And how much better one trial is than another, and whether chance may do as much.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import hypot, log, log2
from typing import Any

import numpy as np

from cog.decoding.tuning import describe_values
from cog.evaluation.metrics.catalogue import METRICS
from cog.evaluation.records import Rows, Score
from cog.evaluation.statistics import Interval, find_jackknife, leave_out, make_interval
from cog.evaluation.tune_settings import Values

PERPLEXITY_WEIGHT = 1.0  # per unit of the logarithm
DIVERSITY_WEIGHT = 2.0  # per 100 points
STEP_WEIGHT = 0.1  # per doubling
SCORES = {  # what they are called here and in an evaluation
    "mauve": "quality/mauve",
    "diversity": "repetition/diversity",
    "perplexity": "perplexity/generated",
    "tokens_per_step": "copies/tokens-per-step",
    "copied": "copies/tokens",
    "per_word": "likelihood/per-word",
}
Scores = dict[str, float]
Parts = Mapping[str, tuple[float, ...]]  # scores of all documents but one, for each


@dataclass(frozen=True, slots=True)
class Trial:
    """One try."""

    values: Values
    # of texts by the names of SCORES, or `per_word`, the perplexity of the references per word
    scores: Scores
    rating: float  # how good that is; larger is better
    parts: Parts = field(default_factory=dict)  # without one document after the other; not of MAUVE
    mauve_error: float = 0.0  # standard error of MAUVE

    @property
    def is_by_texts(self) -> bool:
        """Whether texts were rated."""
        return "diversity" in self.scores

    def to_json(self) -> dict[str, Any]:
        """The trial as plain values."""
        return {**self.values, **self.scores, "rating": self.rating}

    def __str__(self) -> str:
        told = {
            "mauve": "MAUVE {:.3f}",
            "diversity": "diversity {:.1f}",
            "perplexity": "perplexity {:.1f}",
            "tokens_per_step": "{:.2f} tokens a step",
            "copied": "{:.0%} copied",
            "per_word": "references {:.2f} per word",
        }
        measured = [told[name].format(value) for name, value in self.scores.items()]
        return f"{self.rating:7.3f}  {describe_values(dict(self.values))}: {', '.join(measured)}"


def rate(scores: Mapping[str, float], *, reference: Scores, plain: Mapping[str, float]) -> float:
    """Rate texts: MAUVE, less their distance from the references, plus how much a step writes.

    ``mauve - |ln(perplexity / reference's)| - 2 |diversity - reference's| / 100 +
    0.1 log2(tokens a step / plain's)``; MAUVE and steps count only where they were measured.
    Seconds count nowhere: they are of a machine and its other work, and a choice must not hang on
    them. Where no text was written, the likelihood of the references is rated.
    """
    if "per_word" in scores:
        return -log(scores["per_word"])
    closeness = PERPLEXITY_WEIGHT * abs(log(scores["perplexity"] / reference["perplexity"]))
    closeness += DIVERSITY_WEIGHT * abs(scores["diversity"] - reference["diversity"]) / 100.0
    step = "tokens_per_step"
    steps = STEP_WEIGHT * log2(scores.get(step, 1.0) / plain.get(step, 1.0))
    return scores.get("mauve", 0.0) - closeness + steps


def leave_out_each(name: str, rows: Rows, documents: Sequence[str]) -> tuple[float, ...]:
    """A score, named as in ``SCORES``, of all documents but one, for each."""
    metric = METRICS[SCORES[name]]
    return tuple(leave_out(metric.sum_rows(rows, documents), metric.combine).tolist())


def take_parts(
    found: Mapping[str, Score], documents: Sequence[str]
) -> dict[str, tuple[float, ...]]:
    """What a rating hangs on of all documents but one, for each; MAUVE has an error of its own."""
    return {
        name: leave_out_each(name, found[whole].rows, documents)
        for name, whole in SCORES.items()
        if whole in found and METRICS[whole].spread is None
    }


def find_mauve_error(found: Mapping[str, Score], documents: Sequence[str]) -> float:
    """The standard error of MAUVE; 0 where it was not measured."""
    score, metric = found.get(SCORES["mauve"]), METRICS[SCORES["mauve"]]
    if score is None or metric.find_error is None:
        return 0.0
    return metric.find_error(metric.sum_rows(score.rows, documents))


def find_gain(
    best: Trial, first: Trial, *, reference: Scores, reference_parts: Parts, num_trials: int
) -> Interval:
    """How much better the best of some trials is rated than the first, on the same documents.

    The interval holds for all trials at once (Bonferroni), since the best was chosen by its rating.
    """

    def rate_both(number: int) -> float:
        one, other = (
            {**trial.scores, **{name: part[number] for name, part in trial.parts.items()}}
            for trial in (best, first)
        )
        beside = {name: part[number] for name, part in reference_parts.items()}
        ratings = [rate(each, reference=beside, plain=other) for each in (one, other)]
        return ratings[0] - ratings[1]

    whole = rate(best.scores, reference=reference, plain=first.scores) - rate(
        first.scores, reference=reference, plain=first.scores
    )
    num_documents = min(map(len, best.parts.values()))
    error = find_jackknife(np.array([rate_both(number) for number in range(num_documents)]))
    error = hypot(error, hypot(best.mauve_error, first.mauve_error))
    num_tests = max(1, num_trials - 1)
    return make_interval(whole, error, num_documents=num_documents, num_tests=num_tests)
