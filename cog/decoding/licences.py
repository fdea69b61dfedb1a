"""Licences: the licence of every document goes in, which documents may be copied from comes out."""

from collections.abc import Iterable
from dataclasses import dataclass

from cog.errors import GenerationError


@dataclass(frozen=True, slots=True)
class LicenceRule:
    """Which licences may be copied from; names are compared without regard to case.

    :param allowed: Only these, if any are named.
    :param denied: Never these.
    """

    allowed: frozenset[str] = frozenset()
    denied: frozenset[str] = frozenset()

    @property
    def is_open(self) -> bool:
        """Whether every licence may be copied from.

        :returns: True if the rule names none.
        """
        return not self.allowed and not self.denied

    def admits(self, licence: str) -> bool:
        """Whether a licence may be copied from.

        :param licence: SPDX id or a name.
        :returns: True if it may.
        """
        name = licence.casefold()
        if name in {denied.casefold() for denied in self.denied}:
            return False
        return not self.allowed or name in {allowed.casefold() for allowed in self.allowed}


def check_rule(rule: LicenceRule, licences: Iterable[str], *, corpus_id: str) -> None:
    """Refuse a rule that names a licence the corpus does not have, or leaves nothing to copy from.

    :param rule: The rule.
    :param licences: The licences of the corpus's documents.
    :param corpus_id: The corpus.
    :raises GenerationError: If a name is unknown or no document is left.
    """
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
    if not any(rule.admits(licence) for licence in known):
        raise GenerationError(
            f"the licence options must leave something of {corpus_id} to copy from",
            found="none of " + ", ".join(known),
            run="name fewer with --deny-licence, or more with --allow-licence",
            about=corpus_id,
        )
