"""The file of tuned settings: plain values go in, checked values come out, whatever was tuned."""

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar, get_origin, get_type_hints

from cog.atomic import write_text_atomically
from cog.errors import GenerationError, advise_on_writing

FORMAT_VERSION = 1

Kept = TypeVar("Kept")


def save_choice(path: Path, content: Mapping[str, Any]) -> None:
    """Keep what was chosen.

    :param path: The file.
    :param content: Plain values.
    :raises GenerationError: If it cannot be written.
    """
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


def load_choice(path: Path, parse: Callable[[dict[str, Any]], Kept], *, reset: str) -> Kept | None:
    """Read what was chosen.

    :param path: The file.
    :param parse: Makes of its values what is wanted; may raise what wrong values raise.
    :param reset: The command that forgets it.
    :returns: What ``parse`` made; None if there is no file.
    :raises GenerationError: If the file is damaged or of another version.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content.pop("format_version") != FORMAT_VERSION:
            raise ValueError("another format_version")
        return parse(content)
    except FileNotFoundError:
        return None
    except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise GenerationError(
            f"{path.name} must be what cog tune wrote",
            found=f"{type(error).__name__}: {error}",
            run=reset,
            about=str(path),
        ) from error


def check_types(record: Any) -> None:  # noqa: ANN401
    """Refuse a record whose values, as a file had them, are not of its types.

    :param record: A dataclass of plain values and records.
    :raises ValueError: If one is not, or is a number that is not finite; the field is named.
    """
    hints = get_type_hints(type(record))
    for field in fields(record):
        value, wanted = getattr(record, field.name), hints[field.name]
        kind = get_origin(wanted) or wanted
        is_right = isinstance(value, (int, float) if kind is float else kind)
        if kind in (int, float):
            is_right = is_right and not isinstance(value, bool) and isfinite(value)
        if not is_right:
            raise ValueError(f"{field.name} is {value!r}")


def remove_choice(path: Path) -> bool:
    """Forget what was chosen.

    :param path: The file.
    :returns: Whether there was anything.
    """
    is_there = path.is_file()
    path.unlink(missing_ok=True)
    return is_there
