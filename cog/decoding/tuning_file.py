"""The file of tuned settings: plain values go in, checked values come out, whatever was tuned."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from cog.atomic import write_text_atomically
from cog.errors import GenerationError, advise_on_writing
from cog.reading import read_record

FORMAT_VERSION = 1

Kept = TypeVar("Kept")


def save_choice(path: Path, content: Mapping[str, Any]) -> None:
    """Keep what was chosen, as plain values."""
    whole = {"format_version": FORMAT_VERSION, **content}
    try:
        write_text_atomically(path, json.dumps(whole, ensure_ascii=False, indent=1) + "\n")
    except OSError as error:
        raise GenerationError(
            f"what was chosen must be written to {path.name}",
            found=error.strerror or str(error),
            run=f"{advise_on_writing(error)}, then run the same command again: it goes on "
            "where it stopped",
            about=str(path),
        ) from error


def load_choice(path: Path, kind: type[Kept], *, reset: str) -> Kept | None:
    """Read what was chosen.

    Gives the record; None if there is no file. Raises ``GenerationError`` if the file is damaged or
    of another version.
    """
    try:
        content = json.loads(path.read_bytes())
        version = content.pop("format_version", None) if isinstance(content, dict) else None
        if version != FORMAT_VERSION:
            raise ValueError(f"format_version {version!r}")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise GenerationError(
            f"{path.name} must be what cog tune wrote",
            found=f"{type(error).__name__}: {error}",
            run=reset,
            about=str(path),
        ) from error
    return read_record(kind, content, error=GenerationError, file=path.name, run=reset)


def remove_choice(path: Path) -> bool:
    """Forget what was chosen; tells whether there was anything."""
    is_there = path.is_file()
    path.unlink(missing_ok=True)
    return is_there
