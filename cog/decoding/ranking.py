"""What is worth looking up: segments go in, the documents they were copied from come out ranked."""

from collections.abc import Sequence

from cog.records import CORPUS, Segment

SourceKey = tuple[str | None, str | None]  # corpus id, document id
GOLDEN_ANGLE = 137.508  # degrees from the hue of one source to the next


def get_key(segment: Segment) -> SourceKey:
    """What tells the source of a copy from others: ids of its corpus and its document."""
    return segment.corpus, segment.document_id


def choose_hue(number: int) -> str:
    """The hue in which a source is shown, by its number from 1: whole degrees."""
    return f"{(210 + (number - 1) * GOLDEN_ANGLE) % 360:.0f}"


def weigh_copies(segments: Sequence[Segment]) -> dict[int, float]:
    """Weigh copies, by their position, in bits; in words where a copy lacks its information."""
    copies = {i: segment for i, segment in enumerate(segments) if segment.origin == CORPUS}
    bits = {i: copy.information for i, copy in copies.items() if copy.information is not None}
    return bits if len(bits) == len(copies) else {i: len(c.text.split()) for i, c in copies.items()}


def rank_documents(segments: Sequence[Segment]) -> list[list[int]]:
    """Rank the documents that were copied from, given by positions of their copies, by weight."""
    weights = weigh_copies(segments)
    documents: dict[SourceKey, list[int]] = {}
    for position in weights:
        documents.setdefault(get_key(segments[position]), []).append(position)
    return sorted(documents.values(), key=lambda copies: -sum(weights[each] for each in copies))
