"""Reading one mapping of a card: plain values go in, checked values come out, wrong ones raise."""

import codecs
import difflib
import re
import reprlib
from collections.abc import Callable, Sequence
from typing import Any

from cog.errors import InvalidCardError

DETECT = "detect"

_UNPRINTABLE = re.compile(r"[\x00-\x08\x0e-\x1f\x7f\ud800-\udfff]")

# Codecs that are no character encodings of files, or that guess.
_ODD_CODECS = frozenset(
    ("idna", "mbcs", "oem", "palmos", "punycode", "raw-unicode-escape", "undefined")
    + ("unicode-escape",)
)


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

    def check_keys(self, known: Sequence[str], *, optional: Sequence[str] = ()) -> None:
        """Refuse unknown fields, naming the nearest known one, and missing ones.

        :param known: Every field of the mapping.
        :param optional: Those of them that may be missing, which means null.
        :raises InvalidCardError: If a field is unknown or missing.
        """
        for key in self.content:
            if key not in known:
                nearest = difflib.get_close_matches(_show(key), known, n=1, cutoff=0.0)[0]
                prefix = f"{self.path}." if self.path else ""
                shown = key if _is_plain(key) else _show(key)
                raise InvalidCardError(
                    f"{self.where}: unknown field {prefix}{shown}",
                    run=f"did you mean {prefix}{nearest}?",
                    about=f"{prefix}{shown}",
                )
        for key in known:
            if key not in self.content and key not in optional:
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
        return None if self.content.get(key) is None else parse(self.child(key))

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
            raise self.error("must be a text", found=_show(value), key=key)
        if not _is_plain(value):
            wanted = "must not hold control characters or lone surrogates"
            raise self.error(wanted, found=_show(value), key=key)
        if one_of is not None and value not in one_of:
            raise self.error(f"must be one of {', '.join(one_of)}", found=_show(value), key=key)
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """Read a text, a list of texts, or null.

        :param key: The field.
        :returns: The texts; empty for null.
        :raises InvalidCardError: If it is anything else.
        """
        value = self.content[key]
        values = [] if value is None else [value] if isinstance(value, str) else value
        is_list = isinstance(values, list)
        if not is_list or not all(isinstance(each, str) and _is_plain(each) for each in values):
            raise self.error("must be a text or a list of texts", found=_show(value), key=key)
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
            raise self.error(f"must be a whole number from {low}", found=_show(value), key=key)
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
            raise self.error(f"must be a number with {rule}", found=_show(value), key=key)
        return float(value)

    def encodings(self, key: str) -> tuple[str, ...]:
        """Read the names of one or more encodings.

        :param key: The field.
        :returns: The names, or ``detect`` alone.
        :raises InvalidCardError: If there is none, or Python has no such encoding.
        """
        names = self.texts(key)
        if names == (DETECT,):
            return names
        for name in names or ("",):
            try:
                "".encode(name)
                if codecs.lookup(name).name.replace("_", "-") in _ODD_CODECS:
                    raise LookupError(name)
            except (LookupError, ValueError):
                wanted = "must name an encoding such as utf-8, cp1252 or utf-16, or be detect"
                raise self.error(wanted, found=_show(name), key=key) from None
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
        except (re.error, OverflowError, RecursionError) as error:
            wanted = "must be a regular expression"
            raise self.error(wanted, found=str(error), key=key) from None
        return text


def _is_plain(value: object) -> bool:
    # Text that can be printed and written: no control characters but white space, no surrogates.
    return isinstance(value, str) and _UNPRINTABLE.search(value) is None


def _show(value: object) -> str:
    # Short, whatever it holds: aliases in YAML can make a value of a few bytes endless.
    return reprlib.repr(value)
