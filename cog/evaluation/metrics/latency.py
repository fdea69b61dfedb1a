"""Latency: the seconds of single texts go in, sums of whole batches come out.

Texts of a batch share its seconds, so it is batches that are independent, not texts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

TOTAL = "total"

Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class BatchSeconds:
    """How long batches took that were written one after another; the first one is cold.

    :param parts: Names of the parts, such as ``retrieve``, and ``total`` at the end.
    :param seconds: Seconds of each batch by part. *Shape:* ``(num_batches, num_parts)``
    :param num_texts: Number of texts of each batch. *Shape:* ``(num_batches,)``
    :param num_tokens: Number of tokens of each batch. *Shape:* ``(num_batches,)``
    """

    parts: tuple[str, ...]
    seconds: Values
    num_texts: Values
    num_tokens: Values

    @property
    def first_warm(self) -> int:
        """Where the warm batches begin.

        :returns: 1; 0 if there is one batch only, which then stands for both.
        """
        return min(1, len(self.num_texts) - 1)


def sum_batches(
    seconds: Sequence[Mapping[str, float]], num_tokens: Sequence[int], *, batch_size: int
) -> BatchSeconds:
    """Add up the seconds of the texts of each batch.

    :param seconds: Seconds by part of each text, in the order they were written.
    :param num_tokens: Number of tokens of each text.
    :param batch_size: Number of texts decoded together; the last batch may be smaller.
    :returns: The sums.
    :raises ValueError: If there is no text, or texts have different parts.
    """
    if not seconds or len(seconds) != len(num_tokens):
        raise ValueError("latency needs at least one text, and the tokens of each")
    parts = list(seconds[0])
    if any(set(each) != set(parts) for each in seconds):
        raise ValueError(f"every text must have the parts {parts}")
    rows = np.array([[*(each[part] for part in parts), sum(each.values())] for each in seconds])
    begins = np.arange(0, len(rows), batch_size)
    return BatchSeconds(
        parts=(*parts, TOTAL),
        seconds=np.add.reduceat(rows, begins),
        num_texts=np.add.reduceat(np.ones(len(rows)), begins),
        num_tokens=np.add.reduceat(np.array(num_tokens, dtype=np.float64), begins),
    )
