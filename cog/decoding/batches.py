"""Batches: any sequence of items goes in, lists of a fixed size come out."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")


def iter_batches(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Cut items into batches without reading ahead.

    :param items: The items.
    :param size: Number of items of a batch; the last may have fewer.
    :yields: The batches.
    """
    source = iter(items)
    while batch := list(islice(source, size)):
        yield batch
