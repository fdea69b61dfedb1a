"""Schemas: records of requests go in, JSON Schema with the meaning of every field comes out."""

import inspect
from dataclasses import MISSING, fields, is_dataclass
from math import isfinite
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from cog.reading import OneOf, Range, read_meanings
from cog.records import Decoding

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
