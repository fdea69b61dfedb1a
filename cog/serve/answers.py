"""Answers: values, failures and pages go in, HTTP responses come out."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from inspect import iscoroutinefunction
from typing import Any

from jinja2 import Environment, PackageLoader, TemplateNotFound
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from cog.serve.arriving import read_request, write_json
from cog.serve.bodies import read_body
from cog.serve.errors import ApiError
from cog.version import __version__

HTML = "text/html"


def answer_json(content: object, *, status: int = 200) -> Response:
    """Answer with a JSON-ready value."""
    return Response(write_json(content), status, media_type="application/json")


@dataclass(frozen=True, slots=True)
class Route:
    """An address, and what answers there.

    :param tell: Takes the engine, the request, and the record of its body if it has one. What may
        take a while is no coroutine; what it gives is answered as JSON unless it is a response.
    :param body: Record of the JSON that ``POST`` sends; None for ``GET``, which sends nothing.
    """

    path: str
    tell: Callable[..., Any]
    summary: str = ""
    body: type[Any] | None = None

    @property
    def method(self) -> str:
        """``POST`` with a body, else ``GET``."""
        return "GET" if self.body is None else "POST"

    async def answer(self, request: Request) -> Response:
        """Answer a request."""
        given = [] if self.body is None else [read_body(self.body, await read_request(request))]
        words = (request.app.state.engine, request, *given)
        is_quick = iscoroutinefunction(self.tell)
        told = await (self.tell(*words) if is_quick else run_in_threadpool(self.tell, *words))
        return told if isinstance(told, Response) else answer_json(told)


def answer_error(scope: Scope, error: ApiError) -> Response:
    """Answer with a failure: as a page where a browser goes to an address, else as JSON."""
    if wants_page(scope):
        context = {"status": error.status, "message": error.message, "run": error.run or ""}
        name = "login" if error.status == 401 else "error"
        page = render(name, {**context, "needs_key": error.status == 401})
        if page is not None:
            return Response(page, error.status, error.headers, media_type=HTML)
    return Response(write_json(error.to_json()), error.status, error.headers, "application/json")


def wants_page(scope: Scope) -> bool:
    """Whether a browser goes to an address that is one of a page."""
    is_data = scope["path"].startswith(("/v1/", "/api/", "/static/", "/documents/", "/generate"))
    return not is_data and HTML in Headers(scope=scope).get("accept", "")


def render(name: str, context: dict[str, Any]) -> str | None:
    """Fill a template; everything is escaped. None if there is no such template."""
    shown = {"page": name, "version": __version__, "problem": "", "run": "", **context}
    try:
        return _get_templates().get_template(f"{name}.html").render(shown)
    except TemplateNotFound:
        return None


@lru_cache(maxsize=1)
def load_static() -> dict[str, bytes]:
    """Read the files that pages need, by name."""
    folder = files("cog.serve") / "pages" / "static"
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


@lru_cache(maxsize=1)
def _get_templates() -> Environment:
    return Environment(loader=PackageLoader("cog.serve", "pages/templates"), autoescape=True)
