"""Named, versioned normalisers: text as received goes in, the text that is indexed comes out.

A name never changes what it does: another behaviour is another version. Names joined by ``+`` are
applied in that order.
"""

import html
import re
from collections.abc import Callable
from html.entities import html5
from typing import TypeAlias

from cog.corpus.wikitext import undo_wikitext
from cog.errors import InvalidCardError
from cog.reading import find_nearest

Normaliser: TypeAlias = Callable[[str], str]

# Only whole references, so that `?a=1&copy=2` stays; what HTML forbids stays as well.
ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")

_SPDX_VARIABLE = re.compile(r"<<var;name=[^;>]*;original=(.*?);match=.*?>>", re.DOTALL)
_SPDX_OPTIONAL = re.compile(r"<<(?:beginOptional(?:;name=[^>]*)?|endOptional)>>")


def normalise_plain(text: str) -> str:
    """Make line ends line feeds and drop outer white space; nothing else is touched."""
    return text.replace("\r\n", "\n").replace("\r", "\n").strip()


def normalise_wikitext(text: str) -> str:
    """Undo the token marks and spacing of WikiText, where that is certain; ``<unk>`` stays."""
    return undo_wikitext(normalise_plain(text))


def normalise_eu_law(text: str) -> str:
    """Drop the stray backtick of the source and make non-breaking spaces spaces."""
    return normalise_plain(text.replace("`", "").replace("\xa0", " "))


def normalise_opus_law(text: str) -> str:
    """Write the table bar that OPUS calls ``_BAR_`` as a bar."""
    return normalise_plain(text.replace("_BAR_", "|"))


def normalise_spdx(text: str) -> str:
    """Fill SPDX variables with their original text, and drop the marks of optional parts."""
    return normalise_plain(_SPDX_OPTIONAL.sub("", _SPDX_VARIABLE.sub(r"\1", text)))


def normalise_html(text: str) -> str:
    """Decode HTML entities, once: ``&amp;lt;`` becomes ``&lt;``."""
    return normalise_plain(ENTITY.sub(_decode_entity, text))


def _decode_entity(match: re.Match[str]) -> str:
    name = match[0][1:]
    if not name.startswith("#") and name not in html5:
        return match[0]  # html.unescape would take the `&not` of `&nothing;`
    decoded = html.unescape(match[0])
    return match[0] if decoded in ("", "\ufffd") else decoded


NORMALISERS: dict[str, Normaliser] = {
    "plain-v1": normalise_plain,
    "html-v1": normalise_html,
    "wikitext-v1": normalise_wikitext,
    "eu-law-v1": normalise_eu_law,
    "opus-law-v1": normalise_opus_law,
    "spdx-v1": normalise_spdx,
}


def get_normaliser(name: str) -> Normaliser:
    """Find a normaliser by its name, such as ``plain-v1``, or several joined by ``+``."""
    names = name.split("+")
    steps = [_get_step(each) for each in names]
    if len(steps) == 1:
        return steps[0]

    def normalise(text: str) -> str:
        for step in steps:
            text = step(text)
        return text

    return normalise


def _get_step(name: str) -> Normaliser:
    if name not in NORMALISERS:
        raise InvalidCardError(
            f"normaliser must be one of {', '.join(NORMALISERS)}, or several joined by +",
            found=repr(name[:80]),
            run=f"did you mean {find_nearest(name, list(NORMALISERS))}?",
        )
    return NORMALISERS[name]
