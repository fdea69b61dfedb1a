"""``/api/switch`` and ``/api/rollback``: what is switched on goes in, what changed comes out."""

from collections.abc import Callable
from dataclasses import asdict

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from cog.errors import CogError, RegistryError
from cog.index.versions.activation import Change, rollback_corpus, switch_corpus
from cog.serve.answers import answer_json
from cog.serve.arriving import read_request
from cog.serve.bodies import EmptyBody, SwitchBody, read_body
from cog.serve.engine import Engine
from cog.serve.errors import ApiError, state_error


async def switch(request: Request) -> Response:
    """Answer ``POST /api/switch``: what was active, and what is."""
    engine: Engine = request.app.state.engine
    body = read_body(SwitchBody, await read_request(request))
    words = f"cog switch {body.corpus}" + (f" --index {body.index}" if body.index else "")
    return await _change(
        lambda: switch_corpus(engine.paths, body.corpus, index=body.index), words=words
    )


async def roll_back(request: Request) -> Response:
    """Answer ``POST /api/rollback``: what was active, and what is."""
    engine: Engine = request.app.state.engine
    read_body(EmptyBody, await read_request(request))
    return await _change(lambda: rollback_corpus(engine.paths), words="cog rollback")


async def _change(work: Callable[[], Change], *, words: str) -> Response:
    try:
        change = await run_in_threadpool(work)
    except CogError as error:
        stated = state_error(error)
        if isinstance(error, RegistryError) and stated.status == 400:
            stated = ApiError(409, stated.message, code="refused", run=stated.run)
        raise stated from error
    before = change.before
    return answer_json(
        {
            "before": asdict(before) if before else None,
            "after": asdict(change.after),
            "is_change": change.is_change,
            "command": words,
        }
    )
