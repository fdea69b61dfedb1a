"""Filters: licences and documents go in, the chunks that may be found come out, part by part.

A part that is searched on disk has a condition for its table, so that nothing of the size of the
corpus is held.
"""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cog.index.tables.store import DOCUMENT, LICENCE

SURROGATE = re.compile(r"[\ud800-\udfff]")

# numbers of chunks: whether they may be found
Admits = Callable[[NDArray[np.int64]], NDArray[np.bool_]]


@dataclass(frozen=True, slots=True)
class PartFilter:
    """The chunks of a part that may be found."""

    num_chunks: int  # how many it admits
    admits: Admits
    condition: str = ""  # what it says, in SQL; of a part that is searched on disk


@dataclass(frozen=True, slots=True)
class AllowedChunks:
    """The chunks of an index that may be found."""

    first_chunks: NDArray[np.int64]  # (num_parts + 1,) where the chunks of each part begin
    parts: tuple[PartFilter, ...]

    @property
    def num_chunks(self) -> int:
        """How many may be found."""
        return sum(each.num_chunks for each in self.parts)

    def admits(self, chunk_ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Tell of a few chunks whether they may be found. *Shape:* ``(num_chunks,)``."""
        is_admitted = np.zeros(len(chunk_ids), dtype=bool)
        numbers = np.searchsorted(self.first_chunks, chunk_ids, side="right") - 1
        for number in np.unique(numbers).tolist():
            places = numbers == number
            own = chunk_ids[places] - self.first_chunks[number]
            is_admitted[places] = self.parts[number].admits(own)
        return is_admitted


def make_condition(licences: Collection[str], excluded: NDArray[np.int64]) -> str:
    """The condition of chunks whose documents have one of the licences, and are not excluded."""
    condition = match_any(LICENCE, sorted(licences))
    if len(excluded):
        condition += f" AND {DOCUMENT} NOT IN ({', '.join(map(str, excluded.tolist()))})"
    return condition


def match_any(column: str, values: Collection[str]) -> str:
    """The condition of rows that hold one of some texts."""
    # what a shell or a request passes on may be no text at all, and then no row holds it
    quoted = ["'" + each.replace("'", "''") + "'" for each in values if not SURROGATE.search(each)]
    if not quoted:
        return "false"
    return f"{column} IN ({', '.join(quoted)})"
