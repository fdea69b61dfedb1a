"""Wrong settings: what a reader of fields refuses goes in, an error of the tree comes out."""

from collections.abc import Iterator
from contextlib import contextmanager

from cog.errors import CogError
from cog.reading import FieldError


@contextmanager
def refuse_wrong_settings(error: type[CogError]) -> Iterator[None]:
    """Raise an error of the tree for a setting that is refused in the block."""
    try:
        yield
    except FieldError as problem:
        raise error(str(problem), found=problem.found, run=problem.run) from None
