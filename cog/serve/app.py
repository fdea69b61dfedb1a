"""The application: an engine and settings go in, an ASGI application comes out."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from cog.errors import CogError
from cog.registry import load_active
from cog.serve.answers import answer_error, answer_json
from cog.serve.completions import complete
from cog.serve.documents import show_document
from cog.serve.engine import Engine
from cog.serve.errors import ApiError, state_error
from cog.serve.generate import generate
from cog.serve.models import list_models, show_model
from cog.serve.security import Security
from cog.serve.settings import ServeSettings
from cog.serve.writing import GoneError
from cog.version import __version__

Answer = Callable[[Request], Awaitable[Response]]
logger = logging.getLogger("cog.serve")


def make_app(engine: Engine, settings: ServeSettings) -> ASGIApp:
    """Make the application.

    :param engine: The engine; it is stopped when the application ends.
    :param settings: What the server was started with.
    :returns: The application, behind its checks.
    """

    @asynccontextmanager
    async def live(_app: Starlette) -> AsyncIterator[None]:
        yield
        await run_in_threadpool(engine.stop)

    app = Starlette(routes=list_routes(), lifespan=live)
    app.state.engine = engine
    app.state.settings = settings
    secured = Security(app, settings)
    app.state.keys = secured.keys
    return secured


def list_routes() -> list[BaseRoute]:
    """All routes, in the order in which they are tried."""
    return [
        _route("/v1/completions", complete, methods=("POST",)),
        _route("/v1/models", list_models),
        _route("/v1/models/{model}", show_model),
        _route("/generate", generate, methods=("POST",)),
        _route("/documents/{corpus}/{document_id:path}", show_document),
        _route("/healthz", show_health),
        _route("/metrics", show_metrics),
        _route("/{path:path}", refuse, methods=("GET", "POST")),
    ]


async def show_health(request: Request) -> Response:
    """Answer ``GET /healthz``.

    :param request: The request.
    :returns: Whether the server goes on; 503 when it is about to end.
    """
    engine: Engine = request.app.state.engine
    try:
        active = await run_in_threadpool(load_active, engine.paths)
    except CogError:
        active = None
    content = {
        "status": "stopping" if engine.is_stopping else "ok",
        "version": __version__,
        "model": engine.model.fingerprint,
        "active": {"corpus": active.corpus, "index": active.index} if active else None,
        "queue": {
            "running": engine.num_running,
            "waiting": engine.num_waiting,
            "max_waiting": engine.settings.max_waiting,
            "batch_size": engine.settings.batch_size,
        },
    }
    return answer_json(content, status=503 if engine.is_stopping else 200)


async def show_metrics(request: Request) -> Response:
    """Answer ``GET /metrics``.

    :param request: The request.
    :returns: Counts in Prometheus's text format.
    """
    engine: Engine = request.app.state.engine
    gauges = {
        "cog_texts_running": engine.num_running,
        "cog_texts_waiting": engine.num_waiting,
        "cog_texts_waiting_limit": engine.settings.max_waiting,
        "cog_indexes_open": engine.indexes.num_open,
    }
    return Response(engine.metrics.format(gauges), media_type="text/plain; version=0.0.4")


async def refuse(request: Request) -> Response:
    """Answer what nothing else answers: with a failure."""
    raise ApiError(404, f"no such address: {request.url.path[:80]!r}", code="no_route")


def _route(path: str, answer: Answer, *, methods: Sequence[str] = ("GET",)) -> Route:
    return Route(path, _Stating(answer, path, methods), methods=None)


class _Stating:
    # answers with what a handler returns, or with its failure in the form of the API
    def __init__(self, answer: Answer, path: str, methods: Sequence[str]) -> None:
        self._answer = answer
        self._path = path
        self._methods = methods

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        response = await self._respond(request)
        if response is None:
            return
        request.app.state.engine.metrics.count_request(self._path, response.status_code)
        await response(scope, receive, send)

    async def _respond(self, request: Request) -> Response | None:
        allowed = (*self._methods, "HEAD") if "GET" in self._methods else self._methods
        try:
            if request.method not in allowed:
                raise ApiError(
                    405,
                    f"{self._path} takes {' and '.join(self._methods)}; found: {request.method}",
                    code="wrong_method",
                    headers={"allow": ", ".join(allowed)},
                )
            return await self._answer(request)
        except GoneError:
            request.app.state.engine.metrics.count_request(self._path, 499)
            return None
        except Exception as error:
            stated = state_error(error)
            if stated.status == 500:
                logger.exception("%s failed", self._path)
            return answer_error(request.scope, stated)
