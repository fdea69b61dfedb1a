"""Prompts of an evaluation: what a corpus holds out goes in, prompts of exact length come out.

Of the held-out prompts one part is for tuning, the other for evaluation. The parts are told by the
document's id alone, so a prompt is never in both, whatever the corpus, the number of prompts, or
the length of a text.
"""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from cog.errors import EvaluationError
from cog.evaluation.protocol import ALL_TOKENS, EVALUATION, TUNING, Protocol
from cog.model.words import WordSplitter
from cog.records import Prompt


@dataclass(frozen=True, slots=True)
class Selection:
    """The prompts that a protocol chooses."""

    prompts: tuple[Prompt, ...]
    num_held_out: int
    num_qualifying: int


def select_prompts(
    held_out: Sequence[Prompt], *, splitter: WordSplitter, protocol: Protocol, corpus_id: str
) -> Selection:
    """Choose prompts and cut them, with their references, to the protocol's lengths.

    Prompt and reference are tokenised as one text and cut between tokens, so that reference and
    generation have the same number of tokens.
    """
    cut = [_cut(prompt, splitter, protocol) for prompt in held_out]
    long_enough = [prompt for prompt in cut if prompt is not None]
    if not long_enough:
        needed = protocol.prompt_tokens + max(protocol.reference_tokens, 1)
        raise EvaluationError(
            f"{corpus_id} must hold out a prompt of {needed} tokens with its reference",
            found=_count(held_out, splitter),
            run="pass --prompts-of a corpus of longer texts (cog corpus show ID says how many "
            "prompts it holds out), or raise prompts.held_out in the card",
            about=corpus_id,
        )
    chosen = tuple(_spread(long_enough)[: protocol.num_prompts])
    return Selection(chosen, len(held_out), len(long_enough))


def _spread(prompts: Sequence[Prompt]) -> list[Prompt]:
    # the first window of every document, then the second of each, and so on: a few hundred windows
    # of one long document would say little about a corpus
    seen: Counter[str] = Counter()
    rounds = []
    for prompt in prompts:
        rounds.append(seen[prompt.document_id])
        seen[prompt.document_id] += 1
    return [prompts[i] for i in sorted(range(len(prompts)), key=rounds.__getitem__)]


def _count(held_out: Sequence[Prompt], splitter: WordSplitter) -> str:
    if not held_out:
        return "none: no text that is held out is as long as params.yaml says under prepare"
    lengths = [len(splitter.token_chars(each.prefix + each.reference)) for each in held_out]
    return f"{len(lengths)} held-out prompts of {min(lengths)} to {max(lengths)} tokens"


def _cut(prompt: Prompt, splitter: WordSplitter, protocol: Protocol) -> Prompt | None:
    text = prompt.prefix + prompt.reference
    chars = splitter.token_chars(text)
    wanted = protocol.prompt_tokens + protocol.reference_tokens
    has_all = protocol.reference_tokens == ALL_TOKENS
    if len(chars) < wanted + has_all:
        return None
    middle = chars[protocol.prompt_tokens - 1][1]
    end = len(text) if has_all else chars[wanted - 1][1]
    return Prompt(
        prompt_id=prompt.prompt_id,
        document_id=prompt.document_id,
        prefix=text[:middle],
        reference=text[middle:end],
        char_start=prompt.char_start,
        char_end=prompt.char_start + end,
    )


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
