"""Held-out prompts: a document and a tokeniser go in, windows of equal token counts come out."""

from collections.abc import Callable, Iterator
from typing import TypeAlias

from cog.records import Document, Prompt

Tokenise: TypeAlias = Callable[[str], list[tuple[int, int]]]


def iter_prompts(
    document: Document, *, tokenise: Tokenise, prompt_tokens: int, reference_tokens: int
) -> Iterator[Prompt]:
    """Cut a document into windows that do not overlap; a rest shorter than a window is left.

    :param document: A document that is held out of the index.
    :param tokenise: Gives the first and one past the last character of every token of a text.
    :param prompt_tokens: Number of tokens of a prefix.
    :param reference_tokens: Number of tokens that follow it.
    :yields: Prompts in the order of the text.
    """
    spans = tokenise(document.text)
    window = prompt_tokens + reference_tokens
    char_start = 0
    for number, first in enumerate(range(0, len(spans) - window + 1, window)):
        # Tokens of one character of several bytes share its span: never begin before the last end.
        char_start = max(char_start, spans[first][0])
        char_cut = spans[first + prompt_tokens - 1][1]
        char_end = spans[first + window - 1][1]
        if char_start < char_cut < char_end:
            yield Prompt(
                prompt_id=f"{document.document_id}#{number}",
                document_id=document.document_id,
                prefix=document.text[char_start:char_cut],
                reference=document.text[char_cut:char_end],
                char_start=char_start,
                char_end=char_end,
            )
        char_start = char_end
