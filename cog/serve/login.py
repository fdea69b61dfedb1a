"""``/api/login``: the key of the server goes in, a session of the browser comes out."""

from starlette.requests import Request
from starlette.responses import Response

from cog.serve.arriving import read_request
from cog.serve.bodies import EmptyBody, LoginBody, read_body
from cog.serve.errors import ApiError
from cog.serve.security import COOKIE, Keys


async def log_in(request: Request) -> Response:
    """Answer ``POST /api/login``: nothing, with a cookie; the key must be the server's."""
    body = read_body(LoginBody, await read_request(request))
    keys: Keys = request.app.state.keys
    if not keys.is_key(body.key):
        raise ApiError(401, "the key must be that of the server", param="key", code="wrong_key")
    answer = Response(status_code=204)
    is_secure = request.url.scheme == "https"
    answer.set_cookie(COOKIE, keys.session, httponly=True, samesite="strict", secure=is_secure)
    return answer


async def log_out(request: Request) -> Response:
    """Answer ``POST /api/logout``: nothing, without the cookie."""
    read_body(EmptyBody, await read_request(request))
    answer = Response(status_code=204)
    answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return answer
