"""Errors as OpenAI's API words them: a failure goes in, a status and a JSON object come out."""

from typing import Any

from cog.errors import (
    AssetError,
    CheckpointError,
    CogError,
    CorpusError,
    CorpusNotFoundError,
    EvaluationError,
    GenerationError,
    IndexingError,
    IndexMismatchError,
    IndexNotBuiltError,
    InvalidCardError,
    NothingActiveError,
    ParamsError,
    RegistryError,
    RequestError,
    TrackingError,
)
from cog.serve.engine import QueueFullError, StoppingError

TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    429: "rate_limit_error",
}
# of the kinds of failures, the first that fits
STATUSES: tuple[tuple[type[CogError], int, str], ...] = (
    (QueueFullError, 429, "queue_full"),
    (StoppingError, 503, "stopping"),
    (CorpusNotFoundError, 404, "model_not_found"),
    (NothingActiveError, 409, "nothing_active"),
    (IndexNotBuiltError, 409, "index_not_built"),
    (IndexMismatchError, 409, "index_mismatch"),
    (RequestError, 400, "invalid_value"),
    (GenerationError, 400, "invalid_value"),
    (InvalidCardError, 404, "model_not_found"),
    (RegistryError, 400, "invalid_value"),
    (IndexingError, 409, "index_unusable"),
    (CorpusError, 404, "not_found"),
    (EvaluationError, 409, "evaluation"),
    (ParamsError, 409, "params"),
    (CheckpointError, 409, "model_unusable"),
    (TrackingError, 409, "tracking"),
    (AssetError, 409, "asset"),
)


class ApiError(Exception):
    """A failure with the status it is answered with, in one line.

    ``param`` is the field of the request that it is about, ``code`` what programs tell it by,
    ``run`` the command that mends it.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        run: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.run = run
        self.headers = headers or {}
        super().__init__(message)

    def to_json(self) -> dict[str, Any]:
        """The error as it is answered."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        content = {
            "message": self.message,
            "type": TYPES.get(self.status, kind),
            "param": self.param,
            "code": self.code,
            "run": self.run,
        }
        return {"error": content}


def state_error(error: Exception) -> ApiError:
    """Give a failure its status; one that is none of ours says nothing of itself."""
    if isinstance(error, ApiError):
        return error
    if not isinstance(error, CogError):
        return ApiError(500, "the server failed; its log says why", code="internal_error")
    for kind, status, code in STATUSES:
        if isinstance(error, kind):
            headers = {"retry-after": str(error.seconds)} if status == 429 else {}  # type: ignore[attr-defined]
            is_field = isinstance(error, RequestError)
            if is_field and error.wanted.endswith("is no known key"):
                code = "unknown_field"
            return ApiError(
                status,
                str(error),
                param=(error.about if is_field else None) or None,
                code=code,
                run=error.run or None,
                headers=headers,
            )
    return ApiError(500, str(error), code="internal_error", run=error.run or None)
