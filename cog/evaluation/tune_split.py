"""Two parts of the held-out prompts: all go in, those to tune on or those to evaluate on come out.

The parts are told by the document's id alone, so a prompt is never in both, whatever the corpus,
the number of prompts, or the length of a text.
"""

import hashlib
from collections.abc import Sequence

from cog.errors import EvaluationError
from cog.records import Prompt

EVALUATION = "evaluation"
TUNING = "tuning"
MIN_DOCUMENTS = 8  # below, all is left to evaluation
TUNING_SHARE = 4  # one document in so many
SEED = 0


def is_for_tuning(document_id: str) -> bool:
    """Whether the prompts of a held-out document serve tuning."""
    digest = hashlib.blake2b(f"{SEED}:{document_id}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % TUNING_SHARE == 0


def take_part(prompts: Sequence[Prompt], part: str) -> list[Prompt]:
    """Take one part of all prompts that a corpus holds out, ``evaluation`` or ``tuning``, in order.

    A corpus that holds out fewer than eight documents leaves all to evaluation.
    """
    if len({prompt.document_id for prompt in prompts}) < MIN_DOCUMENTS:
        return list(prompts) if part == EVALUATION else []
    return [each for each in prompts if is_for_tuning(each.document_id) == (part == TUNING)]


def check_tuning_prompts(held_out: Sequence[Prompt], corpus_id: str) -> None:
    """Refuse a corpus that holds out too few documents to tune on."""
    if not take_part(held_out, TUNING):
        num_documents = len({prompt.document_id for prompt in held_out})
        raise EvaluationError(
            f"tuning {corpus_id} needs eight held-out documents or more, one of them for tuning",
            found=f"{num_documents}, none for tuning",
            run="raise prompts.held_out in the card",
            about=corpus_id,
        )
