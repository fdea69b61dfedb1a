"""Records out of files: plain values and a record's type go in; the record comes out, checked.

A record is a frozen dataclass. Its annotations say what a value must be (``Annotated[int,
Range(at_least=1)]``), its defaults what a missing key means, and its ``__post_init__`` raises
:class:`FieldError` where values do not go together. The same annotations give the command line its
ranges.
"""

import difflib
import inspect
import re
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import date
from functools import cache
from math import inf, isfinite
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from cog.errors import CogError

Record = TypeVar("Record")
Keys = tuple[str, ...]  # that lead to a value

# what YAML 1.1 takes for text, and everyone else for a number
_EXPONENT = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+")
_NOUNS: dict[Any, tuple[str, str]] = {
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    bool: ("true or false", "truth values"),
    str: ("a text", "texts"),
    NoneType: ("null", "nulls"),
}
_MEANING = re.compile(r"^:param (\w+): (.*(?:\n .*)*)", re.MULTILINE)
_WRONG = object()
_SHOWN = reprlib.Repr()
_SHOWN.maxstring = _SHOWN.maxother = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Numbers between two ends; ``above`` and ``below`` leave the end itself out."""

    at_least: float = -inf
    above: float = -inf
    at_most: float = inf
    below: float = inf

    def allows(self, value: float) -> bool:
        """Whether a number lies in the range."""
        return self.at_least <= value <= self.at_most and self.above < value < self.below

    def describe(self, noun: str) -> str:
        """Such as ``a number above 0 and up to 1``."""
        is_open = isfinite(self.above)
        low = f" above {self.above:.12g}" if is_open else ""
        low = f" from {self.at_least:.12g}" if isfinite(self.at_least) else low
        high = f" below {self.below:.12g}" if isfinite(self.below) else ""
        high = f" {self.at_most:.12g}" if isfinite(self.at_most) else high
        joint = "" if not (low and high) else " and up to" if is_open else " to"
        return f"{noun}{low}{joint}{high}"


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of a few texts."""

    choices: tuple[str, ...]

    def allows(self, value: str) -> bool:
        """Whether it is one of them."""
        return value in self.choices

    def describe(self, noun: str) -> str:
        """All of them."""
        return f"one of {', '.join(self.choices)}"


@dataclass(frozen=True, slots=True)
class Form:
    """Values that a function admits, and what to call them."""

    wanted: str
    test: Callable[[Any], object]

    def allows(self, value: Any) -> bool:
        """Whether the function admits it."""
        return bool(self.test(value))

    def describe(self, noun: str) -> str:
        """What they are called."""
        return self.wanted


Rule = Range | OneOf | Form  # what a value must be, beside being of its type


@dataclass(frozen=True, slots=True)
class Short:
    """A text may stand in the place of a mapping; it is the value of this key."""

    key: str


@dataclass(frozen=True, slots=True)
class OneOrMany:
    """One value may stand in the place of a list of it, and null in that of an empty one."""


@dataclass(frozen=True, slots=True)
class Via:
    """The file has another record than the program; a function makes the one of the other."""

    kind: Any
    convert: Callable[[Any], Any]


Count = Annotated[int, Range(at_least=1)]
Natural = Annotated[int, Range(at_least=0)]
Factor = Annotated[float, Range(at_least=0)]
PositiveFactor = Annotated[float, Range(above=0)]
Share = Annotated[float, Range(at_least=0, at_most=1)]
Text = Annotated[str, Form("a text that is not empty", str.strip)]


class FieldError(ValueError):
    """A field of a record that is wrong, or does not go with the others.

    What was wanted is a clause that follows the field's name; it may say what was found.
    """

    def __init__(self, *keys: str, wanted: str, found: str = "", run: str = "") -> None:
        super().__init__(f"{_join(keys)} {wanted}")
        self.keys = keys
        self.wanted = wanted
        self.found = found
        self.run = run


def read_record(
    kind: type[Record],
    content: object,
    *,
    error: type[CogError],
    file: str = "",
    find_line: Callable[[Keys], int | None] = lambda _: None,
    check: Callable[[Record], None] = lambda _: None,
    run: str = "",
) -> Record:
    """Read a mapping of plain values into a record; the first that is wrong is told.

    ``check`` raises ``FieldError`` where a record that stands in a file must be more than one that
    the program makes; ``find_line`` finds the line on which the value of some keys stands; ``run``
    mends a file that no person writes.
    """
    try:
        record: Record = _read(kind, content, ())
        check(record)
    except FieldError as problem:
        line = find_line(problem.keys) if problem.keys else None
        place = f"{file}, line {line}" if line else file
        dotted = _join(problem.keys)
        raise error(
            f"{': '.join(each for each in (place, dotted) if each)} {problem.wanted}",
            found=problem.found,
            run=run or problem.run,
            about=dotted or file,
        ) from None
    return record


def read_field(kind: Any, name: str, value: object) -> Any:
    """Read one value as a record has it; ``FieldError`` if it is wrong, or no such field is."""
    _check_known(kind, [name], ())
    return _read(_get_hints(kind)[name], value, (name,))


def get_rule(kind: Any, name: str) -> Rule | None:
    """What a record's field must be, beside being of its type: the first rule, if there is one."""
    rules = _get_rules(_split(_get_hints(kind)[name])[1])
    return rules[0] if rules else None


def find_nearest(word: object, known: Sequence[str]) -> str:
    """The known word that is most like another; one word or more are known."""
    return difflib.get_close_matches(str(word)[:80], known, n=1, cutoff=0.0)[0]


def read_meanings(kind: type[Any]) -> dict[str, str]:
    """What the docstring of a record says of its fields."""
    text = inspect.cleandoc(kind.__doc__ or "")
    found = {name: " ".join(words.split()) for name, words in _MEANING.findall(text)}
    return {name: re.sub(r"``|\*", "", words) for name, words in found.items()}


def show(value: object) -> str:
    """A value for messages: one short line, since a few bytes of YAML can be an endless one."""
    return "null" if value is None else _SHOWN.repr(value)


@cache
def _get_hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _split(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    base, *extras = get_args(kind) if get_origin(kind) is Annotated else (kind,)
    return base, tuple(extras)


def _get_rules(extras: tuple[Any, ...]) -> list[Rule]:
    return [each for each in extras if isinstance(each, Rule)]


def _is_union(kind: Any) -> bool:
    return get_origin(kind) in (Union, UnionType)


def _read(kind: Any, given: Any, keys: Keys) -> Any:
    content = given
    base, extras = _split(kind)
    for extra in extras:
        if isinstance(extra, Via):
            section = _read(extra.kind, content, keys)
            with _seen_from(keys):
                return extra.convert(section)
        if isinstance(extra, Short) and isinstance(content, str):
            content = {extra.key: content}
        if isinstance(extra, OneOrMany) and not isinstance(content, list | Mapping):
            content = [] if content is None else [content]
    rules = _get_rules(extras)
    if content is False and any(isinstance(rule, OneOf) and rule.allows("off") for rule in rules):
        content = "off"  # which YAML 1.1 reads as a truth value
    value = _convert(base, content, keys)
    if value is _WRONG:
        # an id, a version or a title that YAML takes for a number, a truth value or a day
        is_choice = any(isinstance(rule, OneOf) for rule in rules)
        is_unquoted = base is str and isinstance(content, int | float | date)
        run = "put it in quotes" if is_unquoted and not is_choice else ""
        raise FieldError(*keys, wanted=f"must be {_describe(kind)}", found=show(given), run=run)
    for rule in rules:
        if not rule.allows(value):
            wanted = f"must be {rule.describe(_get_noun(base))}"
            raise FieldError(*keys, wanted=wanted, found=show(given))
    return value


def _convert(kind: Any, content: Any, keys: Keys) -> Any:
    # the value; _WRONG if it is of another type
    outer = get_origin(kind) or kind
    if kind in (Any, object):
        return content
    if _is_union(kind):
        option = _choose(get_args(kind), content)
        return _WRONG if option is None else _read(option, content, keys)
    if outer is dict or is_dataclass(kind):
        if content is None and keys and (outer is dict or not _list_needed(kind)):
            content = {}  # a section all of whose lines are comments
        read = _read_dict if outer is dict else _read_dataclass
        return read(kind, content, keys) if isinstance(content, Mapping) else _WRONG
    if outer in (list, tuple):
        (inner, *_), is_list = get_args(kind), isinstance(content, list)
        if not is_list or any(_convert(_split(inner)[0], each, keys) is _WRONG for each in content):
            return _WRONG
        return outer(_read(inner, each, keys) for each in content)
    if kind is float:
        if type(content) is int or (isinstance(content, str) and _EXPONENT.fullmatch(content)):
            content = _to_float(content)
        return content if type(content) is float and isfinite(content) else _WRONG
    return content if type(content) is kind else _WRONG


def _to_float(content: int | str) -> float:
    try:
        return float(content)
    except OverflowError:  # a whole number of hundreds of digits
        return inf


def _choose(options: tuple[Any, ...], content: object) -> Any:
    # the option that is meant; None if none can be
    if content is None:
        return NoneType if NoneType in options else None
    if not isinstance(content, Mapping):
        plain = (each for each in options if each is not NoneType and not is_dataclass(each))
        return next(plain, None)
    records: list[Any] = [each for each in options if is_dataclass(each)]
    if len(records) == 1:
        return records[0]
    shared = [sum(name in content for name in _get_hints(each)) for each in records]
    return records[shared.index(max(shared))] if any(shared) else None


def _read_dict(kind: Any, content: Mapping[Any, Any], keys: Keys) -> dict[str, Any]:
    for key in content:
        if not isinstance(key, str):
            run = "put it in quotes"
            raise FieldError(*keys, wanted="must have texts as keys", found=show(key), run=run)
    inner = get_args(kind)[1]
    return {key: _read(inner, value, (*keys, key)) for key, value in content.items()}


def _read_dataclass(kind: Any, content: Mapping[Any, Any], keys: Keys) -> Any:
    _check_known(kind, content, keys)
    hints = _get_hints(kind)
    for name in _list_needed(kind):
        if name not in content:
            is_nullable = NoneType in get_args(_split(hints[name])[0])
            found = "no such key (null is allowed)" if is_nullable else ""
            raise FieldError(*keys, name, wanted="is missing", found=found)
    values = {name: _read(hints[name], value, (*keys, name)) for name, value in content.items()}
    with _seen_from(keys):
        return kind(**values)


@contextmanager
def _seen_from(keys: Keys) -> Iterator[None]:
    try:
        yield
    except FieldError as error:
        error.keys = (*keys, *error.keys)
        raise


def _list_needed(kind: Any) -> list[str]:
    return [
        each.name
        for each in fields(kind)
        if each.default is MISSING and each.default_factory is MISSING
    ]


def _check_known(kind: Any, names: Iterable[Any], keys: Keys) -> None:
    known = list(_get_hints(kind))
    for name in names:
        if name not in known:
            word = name if isinstance(name, str) else show(name)
            near = difflib.get_close_matches(str(word)[:80], known, n=1, cutoff=0.4)
            run = f"did you mean {near[0]}?" if near else f"take one of {', '.join(known)}"
            raise FieldError(*keys, word, wanted="is no known key", run=run)


def _join(keys: Keys) -> str:
    is_plain = [key.isprintable() and len(key) <= 80 for key in keys]
    return ".".join(key if fits else show(key) for key, fits in zip(keys, is_plain, strict=True))


def _get_noun(kind: Any) -> str:
    return _NOUNS.get(kind, ("a mapping", ""))[0]


def _describe(kind: Any, *, is_option: bool = False) -> str:
    base, extras = _split(kind)
    for extra in extras:
        if isinstance(extra, Via):
            return _describe(extra.kind)
    outer, inner = get_origin(base) or base, get_args(base)
    if _is_union(base):
        words = [f"a {each.key}" for each in extras if isinstance(each, Short)]
        words += [_describe(each, is_option=True) for each in inner]
        return " or ".join(part for part in (", ".join(words[:-1]), words[-1]) if part)
    if is_dataclass(base) and is_option:
        return f"{{{', '.join(each.name for each in fields(base))}}}"
    if outer in (list, tuple):
        single, plural = _NOUNS.get(_split(inner[0])[0], ("a value", "values"))
        is_single = any(isinstance(each, OneOrMany) for each in extras)
        return f"{single} or a list of {plural}" if is_single else f"a list of {plural}"
    rules = _get_rules(extras)
    return rules[0].describe(_get_noun(base)) if rules else _get_noun(base)
