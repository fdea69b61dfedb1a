"""What preparing a corpus did: counts go in, one JSON-ready record comes out."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from cog.errors import CorpusError
from cog.reading import read_record

HELD_OUT = "held-out"
SKIP_REASONS = (
    "empty",
    "malformed",
    "too-short",
    "too-long",
    "duplicate",
    "near-duplicate",
    "excluded",
    HELD_OUT,
    "outside-subset",
)


@dataclass(frozen=True, slots=True)
class PrepareReport:
    """Counts of a prepared corpus: ``num_read`` is ``num_documents`` plus all that was skipped."""

    corpus: str
    normaliser: str  # name and version of the text normaliser
    num_read: int  # documents found in the raw files
    num_documents: int  # documents kept
    skipped: dict[str, int]  # number of documents not kept, by reason; every reason is there
    num_words: int  # white-space separated words of the documents kept
    num_characters: int  # characters of the documents kept
    num_prompts: int  # held-out prompts
    digest: str  # sha256 of the documents in order
    prompts_digest: str  # sha256 of the prompts in order
    notes: tuple[str, ...]  # what a person should know, such as a byte-order mark that was stripped
    # ids, or files and lines, of the first that were skipped, by reason
    examples: dict[str, list[str]] = field(default_factory=dict)
    # number of text files read, by encoding
    encodings: dict[str, int] = field(default_factory=dict)
    # share of the documents in a sample by language, largest first
    languages: dict[str, float] = field(default_factory=dict)
    num_without_prompt: int = 0  # held-out documents that are too short for a prompt

    def describe(self) -> list[str]:
        """Say what became of every document, one line each for what a person should know."""
        num_held_out = self.skipped[HELD_OUT]
        num_skipped = self.num_read - self.num_documents - num_held_out
        too_short = f", {n} too short for one" if (n := self.num_without_prompt) else ""
        lines = [
            f"{self.corpus}: {self.num_read} documents in = {self.num_documents} to index"
            f" ({self.num_words} words) + {num_held_out} held out"
            f" ({self.num_prompts} prompts{too_short}) + {num_skipped} skipped"
        ]
        for reason, count in self.skipped.items():
            if count:
                named = self.examples.get(reason, [])
                more = ", ..." if count > len(named) > 0 else ""
                lines.append(f"{count} {reason}: {', '.join(named)}{more}".removesuffix(": "))
        if self.encodings:
            lines.append("files: " + ", ".join(f"{n} {name}" for name, n in self.encodings.items()))
        if self.languages:
            shares = ", ".join(f"{name} {share:.0%}" for name, share in self.languages.items())
            lines.append(f"languages: {shares}")
        return [*lines, *(f"note: {note}" for note in self.notes)]

    def to_json(self) -> str:
        """One JSON object with sorted keys."""
        return json.dumps(asdict(self), sort_keys=True, ensure_ascii=False)


def parse_report(text: str | bytes, path: Path) -> PrepareReport:
    """Read back what ``to_json`` wrote into a file of documents."""
    run = f"cog corpus prepare {path.parent.name}"
    try:
        content = json.loads(text)
    except ValueError as error:
        wanted = f"{path.name} must hold a prepare report"
        raise CorpusError(wanted, found=str(error), run=run) from error
    return read_record(PrepareReport, content, error=CorpusError, file=path.name, run=run)
