"""CoG, the Copy-Generator: text written by copying phrases out of a switchable text collection.

>>> import cog
>>> project = cog.open(".")
>>> with project.generator("wiki-mini") as generator:
...     text = generator.generate("The Baltic Sea is")
"""

from pathlib import Path
from typing import TYPE_CHECKING

from cog.errors import CogError
from cog.version import __version__

if TYPE_CHECKING:
    from cog.api.project import Project


__all__ = ["CogError", "__version__", "open"]


def open(folder: str | Path = ".") -> "Project":  # noqa: A001  # cog.open, as files are opened
    """Open the project of a folder, or of one above it."""
    from cog.api.project import open_project  # `import cog` alone loads nothing of it

    return open_project(folder)
