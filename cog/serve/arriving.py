"""JSON on the wire: a request goes in, its body comes out, within limits; answers go back."""

import asyncio
import json
from typing import Any

from starlette.requests import ClientDisconnect, Request

from cog.errors import RequestError
from cog.serve.errors import ApiError
from cog.serve.settings import ServeSettings
from cog.serve.writing import GoneError


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


CLOSE = {"connection": "close"}  # what is left of the body is not read


async def read_request(request: Request) -> dict[str, object]:
    """Read the JSON object that a request holds, unless it is too large or too slow."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiError(
            415,
            f"a body must be JSON; found: Content-Type {kind[:80] or 'none'!r}; next: send the "
            "header Content-Type: application/json",
            code="no_json",
            headers=CLOSE,
        )
    settings: ServeSettings = request.app.state.settings
    try:
        async with asyncio.timeout(settings.body_seconds):
            body = await _read(request, settings.max_body_bytes)
    except TimeoutError:
        raise ApiError(
            408,
            f"a body must have arrived in {settings.body_seconds:g} seconds",
            code="slow_body",
            headers=CLOSE,
        ) from None
    except ClientDisconnect:
        raise GoneError from None
    try:
        return read_json(body)
    except RequestError as error:
        raise ApiError(400, str(error), code="no_json") from None


async def _read(request: Request, limit: int) -> bytes:
    too_large = ApiError(
        413, f"a body must have {limit} bytes at most", code="too_large", headers=CLOSE
    )
    stated = request.headers.get("content-length", "")
    if stated.isdecimal() and int(stated) > limit:
        raise too_large
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise too_large
        parts.append(part)
    return b"".join(parts)
