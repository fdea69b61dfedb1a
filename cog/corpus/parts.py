"""Documents that are too long: a text goes in, a place to cut it or its parts come out."""

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from cog.records import Document

MAX_DOCUMENT_CHARACTERS = 1 << 24
COUNTED_AT_ONCE = 1 << 20


def find_cut(text: str, max_characters: int) -> int:
    """Find where a text that is too long is cut: after a line feed, else a space, else anywhere.

    Gives the number of characters of the first part, at least half of ``max_characters``.
    """
    lowest = max_characters // 2
    for mark in ("\n", " "):
        cut = text.rfind(mark, lowest, max_characters) + 1
        if cut > 0:
            return cut
    return max_characters


def name_part(document_id: str, part: int) -> str:
    """Name a part of a document, from 1; 0 for a document in one piece."""
    return f"{document_id}:part-{part}" if part else document_id


def iter_pieces(text: str, max_characters: int) -> Iterator[tuple[int, str]]:
    """Cut a text into pieces that are not too long; gives where each begins, and the piece."""
    start = 0
    while len(text) - start > max_characters:
        cut = find_cut(text[start : start + max_characters + 1], max_characters)
        yield start, text[start : start + cut]
        start += cut
    yield start, text[start:]


def iter_parts(document: Document) -> Iterator[Document]:
    """Cut a document that is too long into parts, which joined are its text."""
    if len(document.text) <= MAX_DOCUMENT_CHARACTERS:
        yield document
        return
    pieces = iter_pieces(document.text, MAX_DOCUMENT_CHARACTERS)
    for part, (_, text) in enumerate(pieces, start=1):
        yield replace(document, document_id=name_part(document.document_id, part), text=text)


@lru_cache(maxsize=1)  # a document is counted where it is filtered and where it is kept
def count_words(text: str) -> int:
    """Count the white-space separated words of a text in bounded memory."""
    if len(text) <= COUNTED_AT_ONCE:
        return len(text.split())
    num_words, is_inside = 0, False
    for start in range(0, len(text), COUNTED_AT_ONCE):
        piece = text[start : start + COUNTED_AT_ONCE]
        num_words += len(piece.split()) - (is_inside and not piece[0].isspace())
        is_inside = not piece[-1].isspace()
    return num_words
