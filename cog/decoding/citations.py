"""Citations: a copied segment and its document go in, a segment that names its source comes out."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from cog.decoding.text import Copy
from cog.errors import IndexMismatchError
from cog.records import Document, Segment


def cite_segment(
    segment: Segment,
    copy: Copy | None,
    documents: Mapping[int, Document],
    *,
    get_corpus_id: Callable[[int], str],
) -> Segment:
    """Name the source of a copied segment, and hold the copy against it.

    Without a copy the segment is returned as it is. Else ``document.text[char_start:char_end]`` is
    its text, or it is an ``IndexMismatchError``. Documents are by their position in the index.
    """
    if copy is None:
        return segment
    document = documents[copy.document_ordinal]
    if document.text[segment.char_start : segment.char_end] != segment.text:
        raise IndexMismatchError(
            f"the index must say what document {document.document_id} says at {segment.char_start}",
            found=repr(segment.text),
            run=f"cog index build {get_corpus_id(copy.document_ordinal)} --force",
            about=document.document_id,
        )
    return replace(
        segment,
        document_id=document.document_id,
        title=document.title,
        licence=document.licence,
        url=document.url,
        corpus=get_corpus_id(copy.document_ordinal),
    )
