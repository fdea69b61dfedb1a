"""A cited text: a generation goes in; its copies, its sources and a view for notebooks come out."""

from dataclasses import dataclass
from typing import Any

from cog.decoding.ranking import rank_documents
from cog.records import CORPUS, Generation, Segment


@dataclass(frozen=True, slots=True)
class Source:
    """A document that was copied from, and what was; its address may be empty."""

    corpus: str
    document_id: str
    title: str
    licence: str
    url: str
    copies: tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class Text:
    """One generated text with its citations.

    ``num_unread_tokens`` is how many of the prefix's first tokens were beyond the model's context:
    0 for nearly every prefix.
    """

    generation: Generation
    num_unread_tokens: int

    def __str__(self) -> str:
        return f"{self.prefix}{self.text}"

    @property
    def prefix(self) -> str:
        """The text that was continued."""
        return self.generation.prefix

    @property
    def text(self) -> str:
        """The continuation; the join of the segments' texts."""
        return self.generation.text

    @property
    def segments(self) -> tuple[Segment, ...]:
        """What the text is made of, in order."""
        return self.generation.segments

    @property
    def citations(self) -> tuple[Segment, ...]:
        """The segments that were copied from a document: where each stands, and its licence."""
        return tuple(each for each in self.segments if each.origin == CORPUS)

    @property
    def sources(self) -> tuple[Source, ...]:
        """The documents that were copied from, those worth looking up first."""
        sources = []
        for positions in rank_documents(self.segments):
            copies = tuple(self.segments[position] for position in positions)
            first = copies[0]
            sources.append(
                Source(
                    first.corpus or self.generation.corpus,
                    first.document_id or "",
                    first.title or "",
                    first.licence or "",
                    first.url or "",
                    copies,
                )
            )
        return tuple(sources)

    def to_dict(self) -> dict[str, Any]:
        """The text as plain values: what ``cog generate --json`` writes."""
        return self.generation.to_json()

    def _repr_html_(self) -> str:
        from cog.api.html import write_text

        return write_text(self)
