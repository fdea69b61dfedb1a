"""Who may ask: a request goes in; it is let through, or refused before anything is read of it.

A page of another site must not reach a server on this machine: the name in ``Host`` must be one of
the server's (another name may be made to point here), and ``Origin``, which browsers send with
what a script or a form sends, must be the server itself. A browser shows a session in the place of
the key.
"""

import hashlib
import hmac
import ipaddress
import re
import secrets
import socket
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cog.serve.answers import answer_error
from cog.serve.bodies import EmptyBody, LoginBody
from cog.serve.engine import Engine
from cog.serve.errors import ApiError
from cog.serve.settings import LOOPBACK, ServeSettings

COOKIE = "cog_session"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
# what everybody may ask for who may call the server: the login, and what raters bring a token for
PUBLIC = re.compile(
    r"/static/[^/]+|/healthz|/api/login|/api/logout|/api/studies/[^/]+/(items|judgements)"
)


class Security:
    """Middleware that checks Host, Origin and key, and sets the headers of every answer."""

    def __init__(self, app: ASGIApp, settings: ServeSettings) -> None:
        self._app = app
        self._names = {*LOOPBACK, settings.host, socket.gethostname(), *settings.allowed_hosts}
        self._names = {name.lower() for name in self._names}
        self.keys = Keys(settings.api_key)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        headers = Headers(scope=scope)
        try:
            self._check_host(headers)
            self._check_origin(headers)
            if not _is_public(scope) and not self.keys.is_admitted(headers):
                raise ApiError(
                    401,
                    "a key is needed; found: "
                    + ("another one" if "authorization" in headers else "none")
                    + "; next: send the header Authorization: Bearer KEY",
                    code="invalid_api_key",
                    headers={"www-authenticate": "Bearer"},
                )
        except ApiError as error:
            await answer_error(scope, error)(scope, receive, send_with_headers)
            return
        await self._app(scope, receive, send_with_headers)

    def _check_host(self, headers: Headers) -> None:
        name = _get_name(headers.get("host", ""))
        if name in self._names or _is_address(name):
            return
        raise ApiError(
            403,
            f"the server must be called by its name; found: Host {headers.get('host', '')[:80]!r}; "
            "next: start it with --allow-host NAME",
            code="wrong_host",
        )

    def _check_origin(self, headers: Headers) -> None:
        origin = headers.get("origin")
        if origin is None:
            is_foreign = headers.get("sec-fetch-site") == "cross-site"
            is_link = headers.get("sec-fetch-mode") == "navigate"
            if not is_foreign or is_link:
                return
        elif origin.partition("://")[2] == headers.get("host"):
            return
        raise ApiError(
            403,
            f"requests of other sites are refused; found: Origin {(origin or 'none')[:80]!r}",
            code="wrong_origin",
        )


class Keys:
    """The key of a server, empty where none is needed, and what a browser shows in its place."""

    def __init__(self, key: str) -> None:
        self._key = key.encode()
        # of this run and this key: a session ends with the server
        secret = secrets.token_bytes(32)
        self.session = hmac.new(secret, self._key, hashlib.sha256).hexdigest()

    def is_key(self, given: str) -> bool:
        """Whether a text is the key; how long it takes tells nothing."""
        return hmac.compare_digest(given.encode("utf-8", "replace"), self._key)

    def is_admitted(self, headers: Headers) -> bool:
        """Whether a request brings the key or a session, or none is needed."""
        if not self._key:
            return True
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return self.is_key(given.strip())
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return False
        return cookie is not None and hmac.compare_digest(
            cookie.value.encode("utf-8", "replace"), self.session.encode()
        )


def _is_public(scope: Scope) -> bool:
    if scope["path"] == "/study":  # the page itself holds nothing: it asks with the token
        return b"token" in parse_qs(scope["query_string"])
    return PUBLIC.fullmatch(scope["path"]) is not None


def _get_name(host: str) -> str:
    # without port; an IPv6 address without its brackets
    name = host.rsplit(":", 1)[0] if not host.endswith("]") and ":" in host else host
    return name.strip("[]").lower().rstrip(".")


def _is_address(name: str) -> bool:
    # nobody can make an address point elsewhere
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


async def log_in(_engine: Engine, request: Request, body: LoginBody) -> Response:
    """Nothing, with a cookie; the key must be the server's."""
    keys: Keys = request.app.state.keys
    if not keys.is_key(body.key):
        raise ApiError(401, "the key must be that of the server", param="key", code="wrong_key")
    answer = Response(status_code=204)
    is_secure = request.url.scheme == "https"
    answer.set_cookie(COOKIE, keys.session, httponly=True, samesite="strict", secure=is_secure)
    return answer


async def log_out(_engine: Engine, _request: Request, _body: EmptyBody) -> Response:
    """Nothing, without the cookie."""
    answer = Response(status_code=204)
    answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return answer
