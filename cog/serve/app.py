"""The application: an engine and settings go in, an ASGI application comes out."""

import logging
import time
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
from cog.serve.answers import answer_error, answer_json, answer_with
from cog.serve.bodies import EmptyBody, JudgementBody, RaterBody, SwitchBody
from cog.serve.completions import complete
from cog.serve.corpora import (
    tell_corpus,
    tell_diff,
    tell_findings,
    tell_history,
    tell_registry,
    tell_samples,
    tell_versions,
)
from cog.serve.defaults import tell_settings
from cog.serve.documents import tell_document
from cog.serve.engine import Engine
from cog.serve.errors import ApiError, state_error
from cog.serve.generate import generate
from cog.serve.login import log_in, log_out
from cog.serve.models import tell_model, tell_models
from cog.serve.openapi import describe_api
from cog.serve.results import tell_results
from cog.serve.security import Security
from cog.serve.settings import ServeSettings
from cog.serve.shown import make_page, show_openapi, show_static
from cog.serve.studies import (
    add_rater,
    answer_studies,
    keep_judgement,
    show_answers,
    tell_items,
    tell_result,
)
from cog.serve.switching import roll_back, switch
from cog.serve.writing import GoneError
from cog.version import __version__

Answer = Callable[[Request], Awaitable[Response]]
QUIET = ("/healthz", "/metrics", "/static/{name}")  # asked for all the time
logger = logging.getLogger("cog.serve")


def make_app(engine: Engine, settings: ServeSettings) -> ASGIApp:
    """Make the application, behind its checks; the engine is stopped when it ends."""

    @asynccontextmanager
    async def live(_app: Starlette) -> AsyncIterator[None]:
        yield
        await run_in_threadpool(engine.stop)

    app = Starlette(routes=list_routes(), lifespan=live)
    app.state.engine = engine
    app.state.settings = settings
    app.state.openapi = describe_api([(path, methods, text) for path, methods, _, text in API])
    secured = Security(app, settings)
    app.state.keys = secured.keys
    return secured


def list_routes() -> list[BaseRoute]:
    """All routes, in the order in which they are tried."""
    pages = {
        "/": "write",
        "/compare": "compare",
        "/corpora": "corpora",
        "/corpora/{corpus_id}": "corpus",
        "/results": "results",
        "/study": "study",
        "/docs": "docs",
    }
    return [
        *(_route(path, answer, methods=methods) for path, methods, answer, _ in API),
        *(_route(path, make_page(name)) for path, name in pages.items()),
        _route("/openapi.json", show_openapi),
        _route("/static/{name}", show_static),
        _route("/{path:path}", refuse, methods=("GET", "POST")),
    ]


async def show_health(request: Request) -> Response:
    """Answer ``GET /healthz``: whether the server goes on; 503 when it is about to end."""
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
    """Answer ``GET /metrics``: counts in Prometheus's text format."""
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
    path = request.url.path
    message = f"no such address: {path[:80]!r}"
    if not path.startswith("/v1/"):
        raise ApiError(404, message, code="no_route")
    # who has used OpenAI's clients looks for its chat first
    run = "write with POST /v1/completions, or see /docs"
    raise ApiError(404, f"{message}; next: {run}", code="no_route", run=run)


GET, POST = ("GET",), ("POST",)
API: tuple[tuple[str, tuple[str, ...], Answer, str], ...] = (
    ("/v1/completions", POST, complete, "Continue prompts, as OpenAI's API does."),
    ("/v1/models", GET, answer_with(tell_models), "The corpora that can be written from."),
    ("/v1/models/{model}", GET, answer_with(tell_model), "One of them."),
    ("/generate", POST, generate, "Continue prefixes, as cog generate --json does."),
    (
        "/documents/{corpus}/{document_id:path}",
        GET,
        answer_with(tell_document),
        "A document, or a part of it.",
    ),
    ("/documents/{corpus}", GET, answer_with(tell_document), "The same, whatever its id is."),
    ("/healthz", GET, show_health, "Whether the server goes on, and what is active."),
    ("/metrics", GET, show_metrics, "Counts for Prometheus."),
    (
        "/api/settings",
        GET,
        answer_with(tell_settings),
        "Settings with their defaults and meanings.",
    ),
    ("/api/corpora", GET, answer_with(tell_registry), "The registry."),
    ("/api/corpora/{corpus_id}", GET, answer_with(tell_corpus), "One corpus."),
    ("/api/corpora/{corpus_id}/samples", GET, answer_with(tell_samples), "A few documents."),
    ("/api/corpora/{corpus_id}/versions", GET, answer_with(tell_versions), "Its built versions."),
    ("/api/corpora/{corpus_id}/diff", GET, answer_with(tell_diff), "What differs between two."),
    ("/api/corpora/{corpus_id}/history", GET, answer_with(tell_history), "Its switches."),
    (
        "/api/corpora/{corpus_id}/findings",
        GET,
        answer_with(tell_findings),
        "What is wrong.",
    ),
    ("/api/history", GET, answer_with(tell_history), "Who switched on what when."),
    ("/api/findings", GET, answer_with(tell_findings), "What is wrong with the project."),
    ("/api/switch", POST, answer_with(switch, SwitchBody), "Make a corpus the active one."),
    (
        "/api/rollback",
        POST,
        answer_with(roll_back, EmptyBody),
        "Go back to what was active before.",
    ),
    (
        "/api/results",
        GET,
        answer_with(tell_results),
        "Kept evaluations, grouped by what may be compared.",
    ),
    ("/api/studies", ("GET", "POST"), answer_studies, "Blind studies: all of them, or a new one."),
    ("/api/studies/{study}/raters", POST, answer_with(add_rater, RaterBody), "Let somebody judge."),
    ("/api/studies/{study}/items", GET, answer_with(tell_items), "What somebody judges."),
    (
        "/api/studies/{study}/judgements",
        POST,
        answer_with(keep_judgement, JudgementBody),
        "Keep an answer.",
    ),
    ("/api/studies/{study}/answers", GET, show_answers, "The sheet of somebody who judges."),
    ("/api/studies/{study}/result", GET, answer_with(tell_result), "What is preferred."),
    ("/api/login", POST, log_in, "Begin a session of a browser with the key."),
    ("/api/logout", POST, log_out, "End it."),
)


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
        began = time.monotonic()
        response = await self._respond(request)
        if response is None:
            return
        request.app.state.engine.metrics.count_request(self._path, response.status_code)
        await response(scope, receive, send)
        if self._path not in QUIET:  # the template, since an address may hold what was copied
            seconds = time.monotonic() - began
            status = response.status_code
            logger.info("%s %s %s, %.2f s", request.method, self._path, status, seconds)

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
