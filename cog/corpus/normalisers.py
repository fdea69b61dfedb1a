"""Named, versioned normalisers: text as received goes in, the text that is indexed comes out.

A name never changes what it does: another behaviour is another version.
"""

import difflib
import re
from collections.abc import Callable
from typing import TypeAlias

from cog.corpus.wikitext import undo_wikitext
from cog.errors import InvalidCardError

Normaliser: TypeAlias = Callable[[str], str]

_SPDX_VARIABLE = re.compile(r"<<var;name=[^;>]*;original=(.*?);match=.*?>>", re.DOTALL)
_SPDX_OPTIONAL = re.compile(r"<<(?:beginOptional(?:;name=[^>]*)?|endOptional)>>")


def normalise_plain(text: str) -> str:
    """Make line ends line feeds and drop outer white space; nothing else is touched.

    :param text: Text as received.
    :returns: The same characters otherwise: no Unicode normalisation, no inner white space lost.
    """
    return text.replace("\r\n", "\n").replace("\r", "\n").strip()


def normalise_wikitext(text: str) -> str:
    """Undo the token marks and spacing of WikiText.

    :param text: Text of WikiText-2 or WikiText-103.
    :returns: Text as it is written, where that is certain; ``<unk>`` stays.
    """
    return undo_wikitext(normalise_plain(text))


def normalise_eu_law(text: str) -> str:
    """Drop the stray backtick of the source and make non-breaking spaces spaces.

    :param text: Text of an article of ``eu-law-mini``.
    :returns: The text.
    """
    return normalise_plain(text.replace("`", "").replace("\xa0", " "))


def normalise_opus_law(text: str) -> str:
    """Write the table bar that OPUS calls ``_BAR_`` as a bar.

    :param text: Text of JRC-Acquis as OPUS and Law-MT have it.
    :returns: The text.
    """
    return normalise_plain(text.replace("_BAR_", "|"))


def normalise_spdx(text: str) -> str:
    """Fill SPDX template variables with their original text and drop the marks of optional parts.

    :param text: A licence text with SPDX 2 template marks.
    :returns: The licence as its author wrote it.
    """
    return normalise_plain(_SPDX_OPTIONAL.sub("", _SPDX_VARIABLE.sub(r"\1", text)))


NORMALISERS: dict[str, Normaliser] = {
    "plain-v1": normalise_plain,
    "wikitext-v1": normalise_wikitext,
    "eu-law-v1": normalise_eu_law,
    "opus-law-v1": normalise_opus_law,
    "spdx-v1": normalise_spdx,
}


def get_normaliser(name: str) -> Normaliser:
    """Find a normaliser by its name.

    :param name: Name and version, such as ``plain-v1``.
    :returns: The function.
    :raises InvalidCardError: If there is none of this name.
    """
    if name not in NORMALISERS:
        nearest = difflib.get_close_matches(name, NORMALISERS, n=1, cutoff=0.0)[0]
        raise InvalidCardError(
            f"normaliser must be one of {', '.join(NORMALISERS)}",
            found=repr(name),
            run=f"did you mean {nearest}?",
            about="normaliser",
        )
    return NORMALISERS[name]
