"""JSON in and out: bytes go in, plain values come out, strictly; and back."""

import json
from typing import Any

from cog.errors import RequestError


def write_json(content: object) -> bytes:
    """Write JSON in UTF-8; what is no Unicode text is escaped."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError:  # an error that shows what somebody sent
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


def read_json(body: bytes) -> dict[str, Any]:
    """Read a JSON object; ``RequestError`` if it is none."""
    try:
        content = json.loads(
            body.decode("utf-8-sig"), parse_constant=_refuse, object_pairs_hook=_join
        )
    except UnicodeDecodeError as error:
        found = f"byte {error.object[error.start]:#04x} at offset {error.start}"
        raise RequestError("the body must be UTF-8", found=found) from None
    except (ValueError, RecursionError) as error:
        raise RequestError("the body must be JSON", found=str(error)) from None
    if not isinstance(content, dict):
        kind = type(content).__name__
        raise RequestError("the body must be a JSON object", found=f"a value of kind {kind}")
    return content


def write_event(content: object, *, name: str = "") -> bytes:
    """Write a server-sent event; its name may be empty."""
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + write_json(content) + b"\n\n"


def _join(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for name, value in pairs:
        if name in content:
            raise ValueError(f"{name[:80]!r} more than once")
        content[name] = value
    return content


def _refuse(word: str) -> None:
    raise ValueError(f"{word}, which is no number")
