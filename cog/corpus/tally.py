"""What happens to records that are not kept: reasons go in, counts and notes come out."""

from collections import Counter
from dataclasses import dataclass, field

from cog.corpus.report import SKIP_REASONS
from cog.errors import CorpusError, spell_surrogates

MAX_EXAMPLES = 3


@dataclass(slots=True)
class Tally:
    """Counts skipped records; stops at the first malformed one if the card says so."""

    on_error: str  # `fail` or `skip`
    # number of records by reason; every reason is there
    skipped: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(SKIP_REASONS, 0)))
    # facts for the report, in the order they came up
    notes: list[str] = field(default_factory=list)
    # facts for the report that are counted, in words, and how often they came up
    facts: Counter[str] = field(default_factory=Counter)
    # number of files by the encoding they were read as
    encodings: Counter[str] = field(default_factory=Counter)
    # the first records that were skipped, by reason
    examples: dict[str, list[str]] = field(default_factory=dict)

    def skip(self, reason: str, which: str) -> None:
        """Count a record, by id or by file and line, that one of ``SKIP_REASONS`` leaves out."""
        self.skipped[reason] += 1
        if self.skipped[reason] <= MAX_EXAMPLES:
            self.examples.setdefault(reason, []).append(which)

    def count(self, fact: str) -> None:
        """Count something worth a note that may come up often."""
        self.facts[fact] += 1

    def list_notes(self) -> list[str]:
        """Word everything that is worth a note."""
        return [*self.notes, *(f"{count} {fact}" for fact, count in self.facts.items())]

    def reject(self, where: str, problem: str, *, reason: str = "malformed") -> None:
        """Count a record that cannot be used; refuse it if the card says ``on_error: fail``."""
        if self.on_error == "fail":
            raise CorpusError(
                f"{where} must be a usable record",
                found=problem,
                run="mend it, or pass --on-error skip (format.on_error: skip in the card)",
            )
        self.skip(reason, where)
        if self.skipped[reason] <= MAX_EXAMPLES:
            self.notes.append(spell_surrogates(f"skipped {where}: {problem}"))
