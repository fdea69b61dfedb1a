"""Latency: the seconds of texts go in, seconds a text and tokens a second come out.

Texts of a batch share its seconds, so it is batches that are independent. The first one is cold and
left out where there are others; parts of a text's time are what benchmarks tell.
"""

import numpy as np
from numpy.typing import NDArray

from cog.evaluation.metrics.metric import HIGHER, LOWER, Measured, Metric, ratio_of
from cog.evaluation.records import SeedResult
from cog.evaluation.session import Evaluation

TOTAL = Metric("latency/total", ratio_of(0, 1), LOWER, is_by_batch=True)
SPEED = Metric("latency/tokens-per-second", ratio_of(2, 0), HIGHER, is_by_batch=True)
METRICS = (TOTAL, SPEED)


def measure(run: Evaluation, seeds: tuple[SeedResult, ...]) -> list[Measured]:
    """Add up the seconds that the texts took when they were written."""
    found = [sum_batches(seed, batch_size=run.plan.protocol.batch_size) for seed in seeds]
    num_texts = int(found[0][:, 1].sum())
    return [Measured(metric, np.stack(found), num_texts=num_texts) for metric in METRICS]


def sum_batches(seed: SeedResult, *, batch_size: int) -> NDArray[np.float64]:
    """Seconds, texts and tokens of every warm batch, in order; of the only one, if it is that."""
    texts = [text.generation for text in seed.texts]
    rows = np.array([[sum(each.seconds.values()), 1.0, each.num_tokens] for each in texts])
    batches = np.add.reduceat(rows, np.arange(0, len(rows), batch_size), axis=0)
    return batches[1:] if len(batches) > 1 else batches
