"""OpenAPI: routes and the records of their bodies go in, the description of the API comes out.

Of every record a JSON Schema, with the meaning of every field.
"""

import inspect
import re
from collections.abc import Iterable
from dataclasses import MISSING, fields, is_dataclass
from math import isfinite
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from cog.reading import OneOf, Range, read_meanings
from cog.records import Decoding
from cog.serve.answers import Route
from cog.version import __version__

_TYPES = {int: "integer", float: "number", bool: "boolean", str: "string", NoneType: "null"}
# nested values that a record holds as a mapping
_NESTED: dict[str, Any] = {"decoding": Decoding}


def make_schema(kind: type[Any]) -> dict[str, Any]:
    """Say what a dataclass must be, as JSON Schema does."""
    hints, meanings = get_type_hints(kind, include_extras=True), read_meanings(kind)
    properties, needed = {}, []
    for each in fields(kind):
        schema = make_type_schema(hints[each.name])
        if each.name in _NESTED and kind is not _NESTED[each.name]:
            schema = {"$ref": f"#/components/schemas/{_NESTED[each.name].__name__}"}
        if each.name in meanings:
            schema["description"] = meanings[each.name]
        if each.default is not MISSING:
            schema["default"] = list(each.default) if each.default == () else each.default
        elif each.default_factory is MISSING:
            needed.append(each.name)
        properties[each.name] = schema
    content = {"type": "object", "properties": properties, "additionalProperties": False}
    summary = inspect.cleandoc(kind.__doc__ or "").split("\n\n")[0].replace("``", "")
    return {"description": summary, **content, **({"required": needed} if needed else {})}


def make_type_schema(kind: Any) -> dict[str, Any]:  # noqa: ANN401
    """Say what a value must be, of a type as records annotate it."""
    base, *rules = get_args(kind) if get_origin(kind) is Annotated else (kind,)
    if get_origin(base) in (Union, UnionType):
        options = [make_type_schema(each) for each in get_args(base)]
        return {"anyOf": options}
    if get_origin(base) in (tuple, list):
        listed = {"type": "array", "items": make_type_schema(get_args(base)[0])}
        is_one = any(type(rule).__name__ == "OneOrMany" for rule in rules)
        return {"anyOf": [listed["items"], listed]} if is_one else listed
    if is_dataclass(base) and isinstance(base, type):
        return make_schema(base)
    if get_origin(base) is dict or base is Any:
        return {"type": "object"} if base is not Any else {}
    schema: dict[str, Any] = {"type": _TYPES[base]}
    for rule in rules:
        schema |= _describe_rule(rule)
    return schema


def _describe_rule(rule: object) -> dict[str, Any]:
    if isinstance(rule, OneOf):
        return {"enum": list(rule.choices)}
    if not isinstance(rule, Range):
        return {}
    ends = {
        "minimum": rule.at_least,
        "exclusiveMinimum": rule.above,
        "maximum": rule.at_most,
        "exclusiveMaximum": rule.below,
    }
    return {name: end for name, end in ends.items() if isfinite(end)}


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


def describe_api(routes: Iterable[Route]) -> dict[str, Any]:
    """Describe the API as OpenAPI 3.1, by paths, methods, and what each does."""
    paths: dict[str, Any] = {}
    kinds: dict[str, type[Any]] = {Decoding.__name__: Decoding}
    for route in routes:
        shown = route.path.replace(":path", "")
        paths.setdefault(shown, {})[route.method.lower()] = _describe_route(route, shown)
        if route.body is not None:
            kinds[route.body.__name__] = route.body
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


def _describe_route(route: Route, path: str) -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)}", path)
    ]
    if route.body is None:
        parameters += [
            {"name": name, "in": "query", "description": words, "schema": {"type": "string"}}
            for name, words in QUERIES.get(path, {}).items()
        ]
    kind = TEXTS.get(path, "application/json")
    failed = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    content: dict[str, Any] = {
        "summary": route.summary,
        "parameters": parameters,
        "responses": {"200": {"description": "Done.", "content": {kind: {}}}}
        | {status: {"description": text, "content": failed} for status, text in FAILURES.items()},
    }
    if route.body is not None:
        schema = {"$ref": f"#/components/schemas/{route.body.__name__}"}
        content["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schema}},
        }
    return content
