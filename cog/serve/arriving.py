"""Bodies off the wire: a request goes in, its JSON comes out, within limits of size and time."""

import asyncio

from starlette.requests import ClientDisconnect, Request

from cog.errors import RequestError
from cog.serve.encoding import read_json
from cog.serve.errors import ApiError
from cog.serve.settings import ServeSettings
from cog.serve.writing import GoneError

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
