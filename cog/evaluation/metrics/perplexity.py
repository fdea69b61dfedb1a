"""Perplexity under another model: generated texts go in, how surprised a judge is comes out.

Text that repeats itself surprises nobody, so what is nearer to real text is the better one.
"""

import numpy as np
from numpy.typing import NDArray

from cog.evaluation.metrics.metric import NEAR, Measured, Metric, perplexity_of
from cog.evaluation.records import SeedResult
from cog.evaluation.session import Evaluation

GENERATED = Metric("perplexity/generated", perplexity_of(0, 1), NEAR, is_log=True)
METRICS = (GENERATED,)
OWN_JUDGE = "the judge is the base of what wrote the texts, and filtered their tokens"


def measure(run: Evaluation, seeds: tuple[SeedResult, ...]) -> list[Measured]:
    """Judge the texts, and what really follows, each given its prompt."""
    prefixes = [prompt.prefix for prompt in run.selection.prompts]

    def judge(texts: list[str]) -> NDArray[np.float64]:
        return run.judge.score_texts(prefixes, texts)

    rows = np.stack([judge([text.generation.text for text in seed.texts]) for seed in seeds])
    reference = judge([prompt.reference for prompt in run.selection.prompts])
    return [Measured(GENERATED, rows, reference, note=OWN_JUDGE if run.is_own_judge else "")]
