"""What is worth looking up: segments go in, the documents they were copied from come out ranked."""

from collections.abc import Sequence

from cog.records import CORPUS, Segment

SourceKey = tuple[str | None, str | None]  # corpus id, document id


def get_key(segment: Segment) -> SourceKey:
    """What tells the source of a copy from others.

    Gives ids of its corpus and its document.
    """
    return segment.corpus, segment.document_id


def weigh_copies(segments: Sequence[Segment]) -> dict[int, float]:
    """Weigh what was copied.

    Gives the position among them to information; to words where a copy lacks it.
    """
    copies = {i: segment for i, segment in enumerate(segments) if segment.origin == CORPUS}
    bits = {i: copy.information for i, copy in copies.items() if copy.information is not None}
    return bits if len(bits) == len(copies) else {i: len(c.text.split()) for i, c in copies.items()}


def rank_documents(segments: Sequence[Segment]) -> list[list[int]]:
    """Rank the documents that were copied from.

    Gives the positions of the copies of each; the document whose copies weigh most comes first.
    """
    weights = weigh_copies(segments)
    documents: dict[SourceKey, list[int]] = {}
    for position in weights:
        documents.setdefault(get_key(segments[position]), []).append(position)
    return sorted(documents.values(), key=lambda copies: -sum(weights[each] for each in copies))
