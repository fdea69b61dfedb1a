"""Latency: the seconds of single generations go in, a summary per part comes out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

TOTAL = "total"


@dataclass(frozen=True, slots=True)
class PartLatency:
    """Seconds of one part of generating a text.

    :param mean: Mean.
    :param median: Median.
    :param high: 95th percentile.
    """

    mean: float
    median: float
    high: float


@dataclass(frozen=True, slots=True)
class Latency:
    """How long texts take; the first is cold, all others are warm.

    :param cold: Seconds of the first text by part, and ``total``.
    :param warm: Summary of the others by part, and ``total``; empty if there is only one text.
    :param tokens_per_second: Tokens over seconds of all texts.
    :param num_texts: Number of texts, the cold one included.
    """

    cold: dict[str, float]
    warm: dict[str, PartLatency]
    tokens_per_second: float
    num_texts: int


def summarise_latency(seconds: Sequence[Mapping[str, float]], num_tokens: Sequence[int]) -> Latency:
    """Summarise the seconds of texts that were written one after another in one process.

    :param seconds: Seconds by part (``retrieve``, ``gather``, ``decode``) of each text, in the
        order they were written.
    :param num_tokens: Number of tokens of each text.
    :returns: The summary.
    :raises ValueError: If there is no text, or texts have different parts.
    """
    if not seconds or len(seconds) != len(num_tokens):
        raise ValueError("latency needs at least one text, and the tokens of each")
    parts = list(seconds[0])
    if any(set(each) != set(parts) for each in seconds):
        raise ValueError(f"every text must have the parts {parts}")
    rows = [{**each, TOTAL: sum(each.values())} for each in seconds]
    all_seconds = sum(row[TOTAL] for row in rows)
    warm = {}
    for part in [*parts, TOTAL] if len(rows) > 1 else []:
        values = np.array([row[part] for row in rows[1:]])
        warm[part] = PartLatency(
            float(values.mean()), float(np.median(values)), float(np.percentile(values, 95))
        )
    speed = sum(num_tokens) / all_seconds if all_seconds else 0.0
    return Latency(rows[0], warm, speed, len(rows))
