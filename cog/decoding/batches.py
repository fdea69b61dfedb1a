"""Batches: any sequence of items goes in, lists of a fixed size come out."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")


def iter_batches(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Cut items into batches without reading ahead; the last one may have fewer."""
    source = iter(items)
    while batch := list(islice(source, size)):
        yield batch
