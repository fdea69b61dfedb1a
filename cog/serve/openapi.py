"""OpenAPI: routes and the records of their bodies go in, the description of the API comes out."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from cog.records import Decoding
from cog.serve import bodies
from cog.serve.schema import make_schema
from cog.version import __version__

BODIES = {
    "/v1/completions": bodies.CompletionBody,
    "/generate": bodies.GenerateBody,
    "/api/switch": bodies.SwitchBody,
    "/api/rollback": bodies.EmptyBody,
    "/api/login": bodies.LoginBody,
    "/api/logout": bodies.EmptyBody,
    "/api/studies": bodies.StudyBody,
    "/api/studies/{study}/raters": bodies.RaterBody,
    "/api/studies/{study}/judgements": bodies.JudgementBody,
}
_DOCUMENT = {
    "index": "Digest of the version that was copied from, as a text names it.",
    "start": "First character that is wanted.",
    "end": "One past the last.",
}
QUERIES = {
    "/documents/{corpus}/{document_id}": _DOCUMENT,
    "/documents/{corpus}": {"id": "Id of the document."} | _DOCUMENT,
    "/api/settings": {"corpus": "Corpus id; what is active unless given."},
    "/api/corpora/{corpus_id}/samples": {"num": "Number of documents.", "seed": "Of the drawing."},
    "/api/corpora/{corpus_id}/diff": {
        "before": "Digest or git revision; the active version unless given.",
        "after": "Digest or git revision; the prepared documents unless given.",
    },
    "/api/studies/{study}/items": {"token": "Who judges."},
    "/api/studies/{study}/answers": {"rater": "Name of the rater."},
}
TEXTS = {
    "/metrics": "text/plain",
    "/api/studies/{study}/answers": "text/csv",
}
FAILURES = {
    "400": "A value cannot be used; `param` names it.",
    "401": "The key is missing or another one.",
    "404": "There is no such corpus, version or document.",
    "409": "The corpus cannot be used as it is; `run` is the command that mends it.",
    "429": "As many texts wait as may; `Retry-After` says when to ask again.",
}


def describe_api(routes: Iterable[tuple[str, Sequence[str], str]]) -> dict[str, Any]:
    """Describe the API as OpenAPI 3.1, by paths, methods, and what each does."""
    paths: dict[str, Any] = {}
    for path, methods, summary in routes:
        shown = path.replace(":path", "")
        for method in methods:
            paths.setdefault(shown, {})[method.lower()] = _describe_route(shown, method, summary)
    kinds = {kind.__name__: kind for kind in (Decoding, *BODIES.values())}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "cog",
            "version": __version__,
            "description": "Texts that copy phrases out of a corpus, each with its source.",
        },
        "paths": paths,
        "components": {
            "schemas": {name: make_schema(kind) for name, kind in kinds.items()} | {"Error": ERROR},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


ERROR: dict[str, Any] = {
    "description": "What went wrong, in the form of OpenAI's API.",
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "message": {"type": "string", "description": "One line."},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"], "description": "The field it is about."},
                "code": {"type": ["string", "null"]},
                "run": {"type": ["string", "null"], "description": "The command that mends it."},
            },
        }
    },
}


def _describe_route(path: str, method: str, summary: str) -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)}", path)
    ]
    if method == "GET":
        parameters += [
            {"name": name, "in": "query", "description": words, "schema": {"type": "string"}}
            for name, words in QUERIES.get(path, {}).items()
        ]
    kind = TEXTS.get(path, "application/json")
    failed = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    content: dict[str, Any] = {
        "summary": summary,
        "parameters": parameters,
        "responses": {"200": {"description": "Done.", "content": {kind: {}}}}
        | {status: {"description": text, "content": failed} for status, text in FAILURES.items()},
    }
    if method == "POST":
        schema = {"$ref": f"#/components/schemas/{BODIES[path].__name__}"}
        content["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schema}},
        }
    return content
