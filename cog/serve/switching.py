"""``/api/switch`` and ``/api/rollback``: what is switched on goes in, what changed comes out."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from starlette.requests import Request

from cog.errors import CogError, RegistryError
from cog.index.versions.activation import Change, rollback_corpus, switch_corpus
from cog.serve.bodies import EmptyBody, SwitchBody
from cog.serve.engine import Engine
from cog.serve.errors import ApiError, state_error


def switch(engine: Engine, _request: Request, body: SwitchBody) -> dict[str, Any]:
    """Make a corpus the active one; what was active, and what is."""
    words = f"cog switch {body.corpus}" + (f" --index {body.index}" if body.index else "")
    return _change(lambda: switch_corpus(engine.paths, body.corpus, index=body.index), words=words)


def roll_back(engine: Engine, _request: Request, _body: EmptyBody) -> dict[str, Any]:
    """Go back to what was active before; what was active, and what is."""
    return _change(lambda: rollback_corpus(engine.paths), words="cog rollback")


def _change(work: Callable[[], Change], *, words: str) -> dict[str, Any]:
    try:
        change = work()
    except CogError as error:
        stated = state_error(error)
        if isinstance(error, RegistryError) and stated.status == 400:
            stated = ApiError(409, stated.message, code="refused", run=stated.run)
        raise stated from error
    return {
        "before": asdict(change.before) if change.before else None,
        "after": asdict(change.after),
        "is_change": change.is_change,
        "command": words,
    }
