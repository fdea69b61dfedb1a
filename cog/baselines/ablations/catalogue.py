"""Ablations by name: what each changes of CoG is told; nothing is loaded here."""

from dataclasses import dataclass

TOKENS = "cog-tokens"
PHRASES = "cog-phrases"
UNSUMMED = "cog-unsummed"
UNVERIFIED = "cog-unverified"
PROMPT_PHRASES = "cog-prompt-phrases"
NUMBERS_OF_CHUNKS = (1, 4, 16, 64, 256, 1024)


@dataclass(frozen=True, slots=True)
class Ablation:
    """CoG with one thing changed.

    :param name: The system's name.
    :param change: What is changed, as a clause.
    :param scores_references: Whether the likelihood of a reference under it is defined and not that
        of CoG.
    :param top_k_documents: Number of chunks retrieved; None for what is asked.
    """

    name: str
    change: str
    scores_references: bool
    top_k_documents: int | None = None


_OTHERS = (
    Ablation(TOKENS, "nothing is copied", True, 0),
    Ablation(PHRASES, "the vocabulary only where no phrase is admissible", False),
    Ablation(UNSUMMED, "occurrences of one text are choices of their own", False),
    Ablation(UNVERIFIED, "what was chosen is written", False),
    Ablation(PROMPT_PHRASES, "the prompt's own phrases are candidates too", True),
)
_NUMBERS = tuple(
    Ablation(f"cog-k{count}", f"{count} chunk{'s' * (count > 1)} retrieved", True, count)
    for count in NUMBERS_OF_CHUNKS
)
ABLATIONS = {ablation.name: ablation for ablation in (*_OTHERS, *_NUMBERS)}
