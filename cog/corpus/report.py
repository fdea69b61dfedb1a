"""What preparing a corpus did: counts go in, one JSON-ready record comes out."""

import json
from dataclasses import asdict, dataclass

from cog.errors import CorpusError

SKIP_REASONS = (
    "empty",
    "malformed",
    "too-short",
    "too-long",
    "duplicate",
    "near-duplicate",
    "excluded",
    "held-out",
    "outside-subset",
)


@dataclass(frozen=True, slots=True)
class PrepareReport:
    """Counts of one prepared corpus; ``num_read`` is ``num_documents`` plus all that was skipped.

    :param corpus: Corpus id.
    :param normaliser: Name and version of the text normaliser.
    :param num_read: Number of documents found in the raw files.
    :param num_documents: Number of documents kept.
    :param skipped: Number of documents not kept, by reason; every reason is there.
    :param num_words: Number of white-space separated words of the documents kept.
    :param num_characters: Number of characters of the documents kept.
    :param num_prompts: Number of held-out prompts.
    :param digest: sha256 of the documents in order.
    :param prompts_digest: sha256 of the prompts in order.
    :param notes: What a person should know, such as a byte-order mark that was stripped.
    """

    corpus: str
    normaliser: str
    num_read: int
    num_documents: int
    skipped: dict[str, int]
    num_words: int
    num_characters: int
    num_prompts: int
    digest: str
    prompts_digest: str
    notes: tuple[str, ...]

    def to_json(self) -> str:
        """Write the report.

        :returns: One JSON object with sorted keys.
        """
        return json.dumps(asdict(self), sort_keys=True, ensure_ascii=False)


def parse_report(text: str | bytes, where: str) -> PrepareReport:
    """Read a report back.

    :param text: What ``to_json`` wrote.
    :param where: Name of the file, for messages.
    :returns: The report.
    :raises CorpusError: If it is no report of this version of cog.
    """
    try:
        content = json.loads(text)
        return PrepareReport(**{**content, "notes": tuple(content["notes"])})
    except (ValueError, TypeError, KeyError) as error:
        raise CorpusError(
            f"{where} must hold a prepare report", found=str(error), run="cog corpus prepare ID"
        ) from error
