"""Sources: generations as JSON lines go in, each document that was copied from comes out once."""

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from cog.cards import Card
from cog.errors import GenerationError

_CREATIVE_COMMONS = re.compile(r"CC-((?:BY)(?:-(?:SA|NC|ND|NC-SA|NC-ND))?)-([1-4]\.\d)", re.I)
_SPDX_ID = re.compile(r"[A-Za-z0-9.+-]+")
_TEXTS = ("corpus", "document_id", "title", "licence", "url")
CardOf = Callable[[str], Card | None]


@dataclass(frozen=True, slots=True)
class Source:
    """One document that was copied from, with what its licence asks to be said.

    :param title: Its title; the id where it has none.
    :param attribution: Whom to name.
    :param num_words: Number of white-space separated words copied.
    """

    corpus: str
    document_id: str
    title: str
    url: str
    attribution: str
    licence: str
    licence_url: str
    num_copies: int
    num_words: int


def collect_sources(lines: Iterable[str], *, card_of: CardOf, where: str) -> list[Source]:
    """Collect the sources of generations, each once, in the order they are first copied from.

    Lines are JSON as ``cog generate --json`` writes them; those of single segments (of
    ``--stream``) are passed over, since the whole follows them. If one is no generation, or there
    is none, it is a ``GenerationError``.
    """
    found: dict[tuple[str, str], Source] = {}
    num_generations = 0
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        content = _read_line(line, where=f"{where}, line {number}")
        if content is None:
            continue
        num_generations += 1
        for segment in content["segments"]:
            if segment["from"] == "corpus":
                _add(found, segment, corpus=content.get("corpus") or "", card_of=card_of)
    if not num_generations:
        raise GenerationError(
            f"{where} must hold at least one generation",
            found="none",
            run="cog generate … --json writes them",
            about=where,
        )
    return list(found.values())


def _read_line(line: str, *, where: str) -> dict[str, Any] | None:
    try:
        content = json.loads(line)
        if "segments" not in content and content.get("from") in ("corpus", "vocabulary"):
            return None
        for segment in content["segments"]:
            is_copy = segment["from"] == "corpus"
            if not isinstance(segment["text"], str) or (is_copy and not segment["document_id"]):
                raise ValueError("a segment without text or document_id")
            for name in _TEXTS if is_copy else ():
                if not isinstance(segment.get(name) or "", str):
                    raise TypeError(f"{name} must be a text, not {str(segment[name])[:40]}")
                (segment.get(name) or "").encode("utf-8")  # no lone surrogate, which JSON may spell
        if not isinstance(content.get("corpus") or "", str):
            raise TypeError("corpus must be a text")
    except (RecursionError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise GenerationError(
            f"{where} must be a generation as cog generate --json writes it",
            found=f"no such key: {error}" if isinstance(error, KeyError) else str(error),
            about=where,
        ) from None
    assert isinstance(content, dict)
    return content


def _add(
    found: dict[tuple[str, str], Source], segment: dict[str, Any], *, corpus: str, card_of: CardOf
) -> None:
    corpus_id = segment.get("corpus") or corpus
    key = corpus_id, segment["document_id"]
    num_words = len(segment["text"].split())
    if key in found:
        before = found[key]
        found[key] = replace(
            before, num_copies=before.num_copies + 1, num_words=before.num_words + num_words
        )
        return
    card = card_of(corpus_id)
    licence = segment.get("licence") or (card.licence.id if card else "")
    found[key] = Source(
        corpus=corpus_id,
        document_id=segment["document_id"],
        title=segment.get("title") or segment["document_id"],
        url=segment.get("url") or "",
        attribution=(card.licence.attribution or "") if card else "",
        licence=licence,
        licence_url=get_licence_url(licence, card),
        num_copies=1,
        num_words=num_words,
    )


def get_licence_url(licence: str, card: Card | None) -> str:
    """Where the terms of a licence can be read; empty if that is not known.

    The address of the corpus's card is taken if the licence is the card's.
    """
    if card is not None and card.licence.url and licence.casefold() == card.licence.id.casefold():
        return card.licence.url
    if match := _CREATIVE_COMMONS.fullmatch(licence):
        return f"https://creativecommons.org/licenses/{match[1].lower()}/{match[2]}/"
    if licence.upper() == "CC0-1.0":
        return "https://creativecommons.org/publicdomain/zero/1.0/"
    is_spdx = _SPDX_ID.fullmatch(licence) and not licence.startswith("LicenseRef")
    return f"https://spdx.org/licenses/{licence}.html" if is_spdx and "-" in licence else ""
