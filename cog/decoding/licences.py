"""What may be copied: licences and ids of documents go in, those that may be copied come out."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from cog.errors import GenerationError


@dataclass(frozen=True, slots=True)
class CopyRule:
    """Which documents may be copied from; licences are compared without regard to case.

    :param allowed: Only documents of these licences, if any are named.
    :param denied: Never documents of these licences.
    :param excluded: Ids of documents that are never copied from.
    """

    allowed: frozenset[str] = frozenset()
    denied: frozenset[str] = frozenset()
    excluded: frozenset[str] = frozenset()

    @property
    def is_open(self) -> bool:
        """Whether every document may be copied from."""
        return not self.allowed and not self.denied and not self.excluded

    def admits_licence(self, licence: str) -> bool:
        """Whether documents of a licence, an SPDX id or a name, may be copied from."""
        name = licence.casefold()
        if name in {denied.casefold() for denied in self.denied}:
            return False
        return not self.allowed or name in {allowed.casefold() for allowed in self.allowed}


def check_rule(rule: CopyRule, licences: Iterable[str], *, corpus_id: str) -> None:
    """Refuse a rule that names a licence the corpus lacks, or leaves nothing to copy from."""
    known = sorted(set(licences))
    folded = {licence.casefold() for licence in known}
    for name in sorted(rule.allowed | rule.denied):
        if name.casefold() not in folded:
            raise GenerationError(
                f"{corpus_id} has no document of licence {name!r}",
                found=", ".join(known),
                run="name one of these",
                about=corpus_id,
            )
    if not any(rule.admits_licence(licence) for licence in known):
        raise GenerationError(
            f"the licence options must leave something of {corpus_id} to copy from",
            found="none of " + ", ".join(known),
            run="name fewer with --deny-licence, or more with --allow-licence",
            about=corpus_id,
        )


def check_documents(
    ordinals: Mapping[str, Collection[int]], *, num_documents: int, corpus_id: str
) -> None:
    """Refuse a rule that excludes a document that stands nowhere in the corpus."""
    unknown = sorted(each for each, found in ordinals.items() if not found)
    if unknown:
        raise GenerationError(
            f"{corpus_id} has no document {unknown[0]!r} to exclude",
            found=f"{num_documents} documents of other ids in its index",
            run="take document_id from the segments of cog generate --json",
            about=unknown[0],
        )


def check_left(num_chunks: int, *, corpus_id: str) -> None:
    """Refuse a rule that leaves nothing to copy from."""
    if not num_chunks:
        raise GenerationError(
            f"what is excluded must leave something of {corpus_id} to copy from",
            found="every document excluded by id or licence",
            run="name fewer with --exclude-document or --deny-licence",
            about=corpus_id,
        )
