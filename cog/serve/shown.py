"""Pages and their files: an address goes in, HTML or a file of the package comes out."""

import hashlib
from collections.abc import Callable
from functools import cache

from starlette.requests import Request
from starlette.responses import Response

from cog.errors import CogError
from cog.registry import load_card
from cog.serve.answers import HTML, answer_json, load_static, render
from cog.serve.engine import Engine
from cog.serve.errors import ApiError
from cog.serve.models import iter_models

KINDS = {
    "css": "text/css",
    "js": "text/javascript",
    "svg": "image/svg+xml",
    "png": "image/png",
    "ico": "image/x-icon",
    "woff2": "font/woff2",
}


def make_page(name: str) -> Callable[[Engine, Request], Response]:
    """Make what answers with a page, by the name of its template."""

    def show(engine: Engine, request: Request) -> Response:
        problem, run = _find_problem(engine)
        context: dict[str, object] = {
            "needs_key": bool(engine.settings.api_key),
            "problem": problem,
            "run": run,
            **request.path_params,
        }
        if "corpus_id" in request.path_params:
            load_card(engine.paths, request.path_params["corpus_id"])
        if name == "docs":
            context["openapi"] = request.app.state.openapi
        page = render(name, context)
        assert page is not None
        return Response(page, media_type=HTML)

    return show


async def show_static(_engine: Engine, request: Request) -> Response:
    """A file that was read at the start."""
    name = request.path_params["name"]
    content = load_static().get(name)
    kind = KINDS.get(name.rpartition(".")[2])
    if content is None or kind is None:
        raise ApiError(404, f"no such file: {name[:80]!r}", code="no_route")
    tag = _get_tag(name)
    headers = {"etag": tag, "cache-control": "no-cache"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers, media_type=kind)


async def show_openapi(_engine: Engine, request: Request) -> Response:
    """What describes the API."""
    return answer_json(request.app.state.openapi)


@cache
def _get_tag(name: str) -> str:
    return f'"{hashlib.sha256(load_static()[name]).hexdigest()[:16]}"'


def _find_problem(engine: Engine) -> tuple[str, str]:
    # why nothing can be written, and the command that changes it
    if next(iter_models(engine), None) is not None:
        return "", ""
    try:
        engine.indexes.resolve(None)
    except CogError as error:
        found = f" (found: {error.found})" if error.found else ""
        return f"Nothing can be written yet: {error.wanted}{found}", error.run
    return "", ""
