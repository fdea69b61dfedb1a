"""Reading one mapping of a card: plain values go in, checked values come out, wrong ones raise."""

import difflib
import re
from collections.abc import Callable, Sequence
from typing import Any

from cog.errors import InvalidCardError


class CheckedMapping:
    """One mapping of a card, with its dotted path for messages.

    :param content: What YAML gave.
    :param where: Name of the file.
    :param path: Dotted path of the mapping; empty for the whole card.
    :raises InvalidCardError: If the content is no mapping, as every method does for its field.
    """

    def __init__(self, content: object, where: str, path: str) -> None:
        self.where = where
        self.path = path
        if not isinstance(content, dict):
            raise self.error("must be a mapping", found=type(content).__name__)
        self.content = content

    def error(self, wanted: str, *, found: str, key: str = "") -> InvalidCardError:
        """Word an error about this mapping or one of its fields.

        :param wanted: What it must be, as a clause.
        :param found: What was there.
        :param key: The field; empty for the mapping itself.
        :returns: The error, to be raised.
        """
        dotted = ".".join(part for part in (self.path, key) if part)
        about = dotted or "the card"
        return InvalidCardError(f"{self.where}: {about} {wanted}", found=found, about=about)

    def check_keys(self, known: Sequence[str]) -> None:
        """Refuse unknown fields, naming the nearest known one, and missing ones.

        :param known: Every field of the mapping.
        :raises InvalidCardError: If a field is unknown or missing.
        """
        for key in self.content:
            if key not in known:
                nearest = difflib.get_close_matches(str(key), known, n=1, cutoff=0.0)[0]
                prefix = f"{self.path}." if self.path else ""
                raise InvalidCardError(
                    f"{self.where}: unknown field {prefix}{key}",
                    run=f"did you mean {prefix}{nearest}?",
                    about=f"{prefix}{key}",
                )
        for key in known:
            if key not in self.content:
                raise self.error("is missing", found="no such key (null is allowed)", key=key)

    def child(self, key: str) -> "CheckedMapping":
        """Go down into a mapping.

        :param key: The field that holds it.
        :returns: The mapping below.
        """
        path = f"{self.path}.{key}" if self.path else key
        return CheckedMapping(self.content[key], self.where, path)

    def optional(self, key: str, parse: Callable[["CheckedMapping"], Any]) -> Any:  # noqa: ANN401
        """Parse a mapping that may be null.

        :param key: The field that holds it.
        :param parse: What reads it.
        :returns: What ``parse`` gave, or None.
        """
        return None if self.content[key] is None else parse(self.child(key))

    def maybe_text(self, key: str, *, one_of: Sequence[str] | None = None) -> str | None:
        """Read a text that may be null.

        :param key: The field.
        :param one_of: The values allowed; None for any.
        :returns: The text, or None.
        """
        return None if self.content[key] is None else self.text(key, one_of=one_of)

    def text(self, key: str, *, one_of: Sequence[str] | None = None) -> str:
        """Read a text.

        :param key: The field.
        :param one_of: The values allowed; None for any.
        :returns: The text, which has more than white space.
        :raises InvalidCardError: If it is no such text.
        """
        value = self.content[key]
        if not isinstance(value, str) or not value.strip():
            raise self.error("must be a text", found=repr(value), key=key)
        if one_of is not None and value not in one_of:
            raise self.error(f"must be one of {', '.join(one_of)}", found=repr(value), key=key)
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """Read a text, a list of texts, or null.

        :param key: The field.
        :returns: The texts; empty for null.
        :raises InvalidCardError: If it is anything else.
        """
        value = self.content[key]
        values = [] if value is None else [value] if isinstance(value, str) else value
        if not isinstance(values, list) or not all(isinstance(each, str) for each in values):
            raise self.error("must be a text or a list of texts", found=repr(value), key=key)
        return tuple(values)

    def integer(self, key: str, *, low: int) -> int:
        """Read a whole number.

        :param key: The field.
        :param low: The smallest one allowed.
        :returns: The number.
        :raises InvalidCardError: If it is no whole number, or too small.
        """
        value = self.content[key]
        if type(value) is not int or value < low:
            raise self.error(f"must be a whole number from {low}", found=repr(value), key=key)
        return value

    def proportion(self, key: str, *, is_valid: Callable[[float], bool], rule: str) -> float:
        """Read a proportion.

        :param key: The field.
        :param is_valid: Whether a number is in range.
        :param rule: The range in words.
        :returns: The number.
        :raises InvalidCardError: If it is no number, or out of range.
        """
        value = self.content[key]
        if type(value) not in (int, float) or not is_valid(value):
            raise self.error(f"must be a number with {rule}", found=repr(value), key=key)
        return float(value)

    def encodings(self, key: str) -> tuple[str, ...]:
        """Read the names of one or more encodings.

        :param key: The field.
        :returns: The names.
        :raises InvalidCardError: If there is none, or Python has no such encoding.
        """
        names = self.texts(key)
        for name in names or ("",):
            try:
                "".encode(name)
            except (LookupError, UnicodeError):
                wanted = "must name an encoding such as utf-8, cp1252, latin-1 or utf-16"
                raise self.error(wanted, found=repr(name), key=key) from None
        return names

    def pattern(self, key: str) -> str:
        """Read a regular expression.

        :param key: The field.
        :returns: The expression, which compiles.
        :raises InvalidCardError: If it does not.
        """
        text = self.text(key)
        try:
            re.compile(text)
        except re.error as error:
            wanted = "must be a regular expression"
            raise self.error(wanted, found=str(error), key=key) from None
        return text
