"""Repetition, diversity and length: texts go in, Rep-n, Diversity and words come out.

Real text repeats itself too, so what is nearer to it is the better one.
"""

import re
from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from cog.evaluation.metrics.metric import NEAR, Measured, Metric, ratio_of
from cog.evaluation.records import SeedResult
from cog.evaluation.session import Evaluation
from cog.evaluation.statistics import Values

ORDERS = (2, 3, 4)  # the n of Rep-n, and of the product that is Diversity
WORD = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")  # noqa: RUF001 - both apostrophes
COUNT = len(ORDERS)  # column of the number of texts; that of their words follows


def combine_diversity(sums: Values) -> Values:
    """Diversity of Rep-2, Rep-3 and Rep-4: the product of ``1 - Rep-n / 100``, in percent."""
    means = sums[..., :COUNT] / np.maximum(sums[..., COUNT : COUNT + 1], 1e-12)
    diversity: Values = 100.0 * np.prod(1.0 - means / 100.0, axis=-1)
    return diversity


METRICS = (
    *(
        Metric(f"repetition/rep-{order}", ratio_of(column, COUNT), NEAR, top=100.0)
        for column, order in enumerate(ORDERS)
    ),
    Metric("repetition/diversity", combine_diversity, NEAR, top=100.0),
    Metric("repetition/words", ratio_of(COUNT + 1, COUNT), NEAR),
)


def measure(run: Evaluation, seeds: tuple[SeedResult, ...]) -> list[Measured]:
    """Count in the texts, and in what really follows."""
    rows = np.stack(
        [score_texts(run.compared([text.generation.text for text in seed.texts])) for seed in seeds]
    )
    reference = score_texts(run.compared([prompt.reference for prompt in run.selection.prompts]))
    return [Measured(metric, rows, reference) for metric in METRICS]


def score_repetition(words: Sequence[Hashable], *, order: int) -> float:
    """Rep-n of one text: ``100 (1 - |unique n-grams| / |n-grams|)`` (CoG, section 4.1), in percent.

    0 for a text of fewer than n words.
    """
    num_grams = len(words) - order + 1
    if num_grams <= 0:
        return 0.0
    unique = {tuple(words[i : i + order]) for i in range(num_grams)}
    return 100.0 * (1.0 - len(unique) / num_grams)


def score_texts(texts: Sequence[str]) -> NDArray[np.float64]:
    """Rep-n of every text, in percent; 1; its words and marks: ``(num_texts, 5)``.

    Differs from the authors' script, which puts the prompts before the texts: here, as in the
    paper, only what was generated counts.
    """
    words = [WORD.findall(text) for text in texts]
    return np.array(
        [
            [*(score_repetition(each, order=order) for order in ORDERS), 1.0, len(each)]
            for each in words
        ],
        dtype=np.float64,
    ).reshape(len(texts), COUNT + 2)
