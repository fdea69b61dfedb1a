"""What tuning looks for: the scores of a trial go in, one number comes out; larger is better."""

from dataclasses import dataclass
from math import log, log2

PERPLEXITY_WEIGHT = 1.0  # per unit of the logarithm
DIVERSITY_WEIGHT = 2.0  # per 100 points
STEP_WEIGHT = 0.1  # per doubling


@dataclass(frozen=True, slots=True)
class Scores:
    """What was measured of some texts.

    :param mauve: MAUVE against the references; None if there are too few texts.
    :param diversity: Percent.
    :param perplexity: Given the prompts, under the protocol's language model.
    :param tokens_per_step: Tokens a step; 0 for references.
    :param copied: Share of tokens that were copied.
    """

    mauve: float | None
    diversity: float
    perplexity: float
    tokens_per_step: float
    copied: float


def rate(scores: Scores, *, reference: Scores, plain: Scores) -> float:
    """Rate a trial: MAUVE, less its distance from the references, plus how much a step writes.

    ``mauve - |ln(perplexity / reference's)| - 2 |diversity - reference's| / 100 +
    0.1 log2(tokens a step / plain's)``; MAUVE counts only where it was measured. Seconds count
    nowhere: they are of a machine and its other work, and a choice must not hang on them.

    :param scores: Of the trial.
    :param reference: Of the references.
    :param plain: Of the first trial, which is nothing but params.yaml.
    :returns: The rating.
    """
    closeness = PERPLEXITY_WEIGHT * abs(log(scores.perplexity / reference.perplexity))
    closeness += DIVERSITY_WEIGHT * abs(scores.diversity - reference.diversity) / 100.0
    steps = STEP_WEIGHT * log2(scores.tokens_per_step / plain.tokens_per_step)
    return (scores.mauve or 0.0) - closeness + steps
