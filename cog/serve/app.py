"""The application: an engine and settings go in, an ASGI application comes out."""

import logging
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress

from starlette import routing
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from cog.errors import CogError
from cog.registry import load_active
from cog.serve.answers import Route, answer_error, answer_json
from cog.serve.bodies import (
    CompletionBody,
    EmptyBody,
    GenerateBody,
    JudgementBody,
    LoginBody,
    RaterBody,
    StudyBody,
    SwitchBody,
)
from cog.serve.completions import complete
from cog.serve.corpora import (
    roll_back,
    switch,
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
from cog.serve.models import tell_model, tell_models
from cog.serve.openapi import describe_api
from cog.serve.results import tell_results
from cog.serve.security import Security, log_in, log_out
from cog.serve.settings import ServeSettings
from cog.serve.shown import make_page, show_openapi, show_static
from cog.serve.studies import (
    add_rater,
    keep_judgement,
    make_new,
    show_answers,
    tell_items,
    tell_result,
    tell_studies,
)
from cog.serve.writing import GoneError
from cog.version import __version__

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
    app.state.openapi = describe_api(API)
    secured = Security(app, settings)
    app.state.keys = secured.keys
    return secured


def list_routes() -> list[routing.BaseRoute]:
    """All routes, in the order in which they are tried."""
    by_path: dict[str, dict[str, Route]] = {}
    for route in (*API, *SHOWN):
        by_path.setdefault(route.path, {})[route.method] = route
    rest = Route("/{path:path}", refuse)
    by_path[rest.path] = {"GET": rest, "POST": rest}
    return [
        routing.Route(path, _Stating(path, routes), methods=None)
        for path, routes in by_path.items()
    ]


def show_health(engine: Engine, _request: Request) -> Response:
    """Whether the server goes on; 503 when it is about to end."""
    active = None
    with suppress(CogError):
        active = load_active(engine.paths)
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


async def show_metrics(engine: Engine, _request: Request) -> Response:
    """Counts in Prometheus's text format."""
    gauges = {
        "cog_texts_running": engine.num_running,
        "cog_texts_waiting": engine.num_waiting,
        "cog_texts_waiting_limit": engine.settings.max_waiting,
        "cog_indexes_open": engine.indexes.num_open,
    }
    return Response(engine.metrics.format(gauges), media_type="text/plain; version=0.0.4")


async def refuse(_engine: Engine, request: Request) -> Response:
    """Answer what nothing else answers: with a failure."""
    path = request.url.path
    message = f"no such address: {path[:80]!r}"
    if not path.startswith("/v1/"):
        raise ApiError(404, message, code="no_route")
    # who has used OpenAI's clients looks for its chat first
    run = "write with POST /v1/completions, or see /docs"
    raise ApiError(404, f"{message}; next: {run}", code="no_route", run=run)


API = (
    Route("/v1/completions", complete, "Continue prompts, as OpenAI's API does.", CompletionBody),
    Route("/v1/models", tell_models, "The corpora that can be written from."),
    Route("/v1/models/{model}", tell_model, "One of them."),
    Route("/generate", generate, "Continue prefixes, as cog generate --json does.", GenerateBody),
    Route("/documents/{corpus}/{document_id:path}", tell_document, "A document, or a part of it."),
    Route("/documents/{corpus}", tell_document, "The same, whatever its id is."),
    Route("/healthz", show_health, "Whether the server goes on, and what is active."),
    Route("/metrics", show_metrics, "Counts for Prometheus."),
    Route("/api/settings", tell_settings, "Settings with their defaults and meanings."),
    Route("/api/corpora", tell_registry, "The registry."),
    Route("/api/corpora/{corpus_id}", tell_corpus, "One corpus."),
    Route("/api/corpora/{corpus_id}/samples", tell_samples, "A few documents."),
    Route("/api/corpora/{corpus_id}/versions", tell_versions, "Its built versions."),
    Route("/api/corpora/{corpus_id}/diff", tell_diff, "What differs between two."),
    Route("/api/corpora/{corpus_id}/history", tell_history, "Its switches."),
    Route("/api/corpora/{corpus_id}/findings", tell_findings, "What is wrong."),
    Route("/api/history", tell_history, "Who switched on what when."),
    Route("/api/findings", tell_findings, "What is wrong with the project."),
    Route("/api/switch", switch, "Make a corpus the active one.", SwitchBody),
    Route("/api/rollback", roll_back, "Go back to what was active before.", EmptyBody),
    Route("/api/results", tell_results, "Kept evaluations, grouped by what may be compared."),
    Route("/api/studies", tell_studies, "Blind studies: all of them."),
    Route("/api/studies", make_new, "A new blind study.", StudyBody),
    Route("/api/studies/{study}/raters", add_rater, "Let somebody judge.", RaterBody),
    Route("/api/studies/{study}/items", tell_items, "What somebody judges."),
    Route("/api/studies/{study}/judgements", keep_judgement, "Keep an answer.", JudgementBody),
    Route("/api/studies/{study}/answers", show_answers, "The sheet of somebody who judges."),
    Route("/api/studies/{study}/result", tell_result, "What is preferred."),
    Route("/api/login", log_in, "Begin a session of a browser with the key.", LoginBody),
    Route("/api/logout", log_out, "End it.", EmptyBody),
)
SHOWN = (
    Route("/", make_page("write")),
    Route("/compare", make_page("compare")),
    Route("/corpora", make_page("corpora")),
    Route("/corpora/{corpus_id}", make_page("corpus")),
    Route("/results", make_page("results")),
    Route("/study", make_page("study")),
    Route("/docs", make_page("docs")),
    Route("/openapi.json", show_openapi),
    Route("/static/{name}", show_static),
)


class _Stating:
    # answers with what the route of a method tells, or with its failure in the form of the API
    def __init__(self, path: str, routes: Mapping[str, Route]) -> None:
        self._path = path
        self._routes = routes

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
        routes = dict(self._routes)
        if "GET" in routes:
            routes["HEAD"] = routes["GET"]
        try:
            if request.method not in routes:
                raise ApiError(
                    405,
                    f"{self._path} takes {' and '.join(self._routes)}; found: {request.method}",
                    code="wrong_method",
                    headers={"allow": ", ".join(routes)},
                )
            return await routes[request.method].answer(request)
        except GoneError:
            request.app.state.engine.metrics.count_request(self._path, 499)
            return None
        except Exception as error:
            stated = state_error(error)
            if stated.status == 500:
                logger.exception("%s failed", self._path)
            return answer_error(request.scope, stated)
