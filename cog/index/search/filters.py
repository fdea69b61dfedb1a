"""Filters: licences and documents go in, the chunks that may be found come out, part by part.

A part whose vectors are in memory has a mask of its chunks. One that is searched on disk has a
condition for its table, so that nothing of the size of the corpus is held.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cog.index.tables.store import DOCUMENT, LICENCE


@dataclass(frozen=True, slots=True)
class TableFilter:
    """The chunks of a table that may be found."""

    condition: str  # in SQL; what `admits` says of one chunk
    num_chunks: int  # how many it admits
    licences: frozenset[str]
    excluded: NDArray[np.int64]  # positions of documents
    # gives LICENCE and DOCUMENT of chunks, which are in ascending order, each once
    read: Callable[[NDArray[np.int64]], pa.Table]

    def admits(self, chunk_ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Tell of a few chunks whether they may be found."""
        unique, places = np.unique(chunk_ids, return_inverse=True)
        rows = self.read(unique)
        is_licensed = [each in self.licences for each in rows.column(LICENCE).to_pylist()]
        is_excluded = np.isin(rows.column(DOCUMENT).to_numpy(), self.excluded)
        return (np.array(is_licensed, dtype=bool) & ~is_excluded)[places]


# of a part: which of its chunks may be found
PartFilter = NDArray[np.bool_] | TableFilter


@dataclass(frozen=True, slots=True)
class AllowedChunks:
    """The chunks of an index that may be found."""

    first_chunks: NDArray[np.int64]  # (num_parts + 1,) where the chunks of each part begin
    parts: tuple[PartFilter, ...]

    @property
    def num_chunks(self) -> int:
        """How many may be found."""
        counts = [
            each.num_chunks if isinstance(each, TableFilter) else int(each.sum())
            for each in self.parts
        ]
        return sum(counts)

    def admits(self, chunk_ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Tell of a few chunks whether they may be found. *Shape:* ``(num_chunks,)``."""
        is_admitted = np.zeros(len(chunk_ids), dtype=bool)
        numbers = np.searchsorted(self.first_chunks, chunk_ids, side="right") - 1
        for number in np.unique(numbers).tolist():
            places = numbers == number
            own, part = chunk_ids[places] - self.first_chunks[number], self.parts[number]
            is_admitted[places] = part.admits(own) if isinstance(part, TableFilter) else part[own]
        return is_admitted


def make_condition(licences: Collection[str], excluded: NDArray[np.int64]) -> str:
    """The condition of chunks whose documents have one of the licences, and are not excluded."""
    condition = match_any(LICENCE, sorted(licences))
    if len(excluded):
        condition += f" AND {DOCUMENT} NOT IN ({', '.join(map(str, excluded.tolist()))})"
    return condition


def match_any(column: str, values: Collection[str]) -> str:
    """The condition of rows that hold one of some texts."""
    if not values:
        return "false"
    quoted = ("'" + each.replace("'", "''") + "'" for each in values)
    return f"{column} IN ({', '.join(quoted)})"
