"""Held-out prompts: a document and a tokeniser go in, windows of equal token counts come out."""

from collections.abc import Callable, Iterator
from typing import TypeAlias

from cog.corpus.parts import iter_pieces
from cog.params import PrepareParams
from cog.records import Document, Prompt

Tokenise: TypeAlias = Callable[[str], list[tuple[int, int]]]

MAX_BLOCK_CHARACTERS = 1 << 18  # longer texts are tokenised in blocks, so that memory stays bounded


def iter_prompts(
    document: Document, *, tokenise: Tokenise, params: PrepareParams
) -> Iterator[Prompt]:
    """Cut a document into windows that do not overlap; a rest shorter than a window is left.

    ``tokenise`` gives the first and one past the last character of every token. No window reaches
    over two blocks of a long text.
    """
    window = params.prompt_tokens + params.reference_tokens
    number = 0
    for offset, block in iter_pieces(document.text, MAX_BLOCK_CHARACTERS):
        spans = tokenise(block)
        char_start = 0
        for first in range(0, len(spans) - window + 1, window):
            # tokens of one character of several bytes share its span: it must not come twice
            char_start = max(char_start, spans[first][0])
            char_cut = spans[first + params.prompt_tokens - 1][1]
            char_end = spans[first + window - 1][1]
            if char_start < char_cut < char_end:
                yield Prompt(
                    prompt_id=f"{document.document_id}#{number}",
                    document_id=document.document_id,
                    prefix=block[char_start:char_cut],
                    reference=block[char_cut:char_end],
                    char_start=offset + char_start,
                    char_end=offset + char_end,
                )
            char_start = char_end
            number += 1
