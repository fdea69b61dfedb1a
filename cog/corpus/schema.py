"""Declared types of fields: a card's schema and a row go in, what does not fit comes out."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from cog.cards import Format

NULLABLE = "?"

_INTEGER = re.compile(r"[+-]?\d+")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


class RepeatedKeys(dict[str, Any]):
    """A JSON object in which keys stand more than once."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        keys = [key for key, _ in pairs]
        self.repeated = frozenset(key for key in self if keys.count(key) > 1)


def build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build a JSON object that remembers keys that stand more than once."""
    values = dict(pairs)
    return values if len(values) == len(pairs) else RepeatedKeys(pairs)


def find_value(values: Mapping[str, Any], name: str, missing: Any = None) -> Any:  # noqa: ANN401
    """Read a column, a key, or a path with dots into objects: ``article.body``."""
    if name in values or "." not in name:
        return values.get(name, missing)
    found: Any = values
    for key in name.split("."):
        if not isinstance(found, dict) or key not in found:
            return missing
        found = found[key]
    return found


def list_read(card_format: Format) -> list[str]:
    """Name the columns that are read, each once: those of the fields and those of the schema."""
    fields = card_format.fields
    names = (*fields.id, *fields.title, *fields.text, *fields.url, *fields.licence)
    return list(dict.fromkeys((*names, *card_format.schema)))


def list_nullable(card_format: Format) -> frozenset[str]:
    """Name the columns that the schema marks with ``?``: they may be null or missing."""
    return frozenset(name for name, kind in card_format.schema.items() if kind.endswith(NULLABLE))


def find_missing(card_format: Format, found: Iterable[str]) -> str | None:
    """Find a column that a file must have and has not."""
    columns, nullable = set(found), list_nullable(card_format)
    for name in list_read(card_format):
        is_there = name in columns or name.split(".")[0] in columns
        if name not in nullable and not is_there:
            return name
    return None


def find_mismatch(values: Mapping[str, Any], card_format: Format, *, is_typed: bool) -> str | None:
    """Find what in a row is not as the card declares it.

    Where it is not typed (csv), every value is a text that spells it.
    """
    if isinstance(values, RepeatedKeys):
        for name in list_read(card_format):
            if name.split(".")[0] in values.repeated:
                return f"the key {name!r} stands twice"
    checks = _TYPED if is_typed else _SPELLED
    for name, kind in card_format.schema.items():
        value = find_value(values, name)
        is_null = value is None or (not is_typed and value == "" and kind != "text")
        if is_null and kind.endswith(NULLABLE):
            continue
        if is_null or not checks[kind.removesuffix(NULLABLE)](value):
            what = "null or missing" if value is None else type(value).__name__
            what = what if is_typed or value is None else repr(value[:40])
            return f"field {name!r} must be {kind}, not {what}"
    return None


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


_TYPED: dict[str, Callable[[Any], bool]] = {
    "text": lambda value: isinstance(value, str),
    "texts": _is_texts,
    "integer": _is_integer,
    "number": lambda value: _is_integer(value) or isinstance(value, float),
    "boolean": lambda value: isinstance(value, bool),
}
_SPELLED: dict[str, Callable[[Any], bool]] = {
    "text": lambda value: True,
    "texts": lambda value: False,
    "integer": lambda value: _INTEGER.fullmatch(value) is not None,
    "number": lambda value: _NUMBER.fullmatch(value) is not None,
    "boolean": lambda value: value.lower() in ("true", "false", "0", "1"),
}
