"""Refusals: wrong settings and packages that are missing go in, errors of the tree come out."""

from collections.abc import Iterator
from contextlib import contextmanager

from cog.errors import CogError
from cog.extras import explain_missing
from cog.reading import FieldError


@contextmanager
def refuse_wrong_settings(error: type[CogError]) -> Iterator[None]:
    """Raise an error of the tree for a setting that is refused in the block."""
    try:
        yield
    except FieldError as problem:
        raise error(str(problem), found=problem.found, run=problem.run) from None


@contextmanager
def name_extras() -> Iterator[None]:
    """Raise an error of the tree, with the extra that brings it, for a package that is missing."""
    try:
        yield
    except ModuleNotFoundError as problem:
        missing = explain_missing(problem)
        if missing is None:
            raise
        raise missing from None
