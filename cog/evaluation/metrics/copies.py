"""What was copied: cited texts go in, shares, lengths and sources of their copies come out.

They describe; a text is not better for having copied more.
"""

from collections.abc import Callable, Sequence
from math import inf

import numpy as np
from numpy.typing import NDArray

from cog.baselines.system import COPYING
from cog.evaluation.metrics.metric import NONE, Measured, Metric, ratio_of
from cog.evaluation.records import SeedResult
from cog.evaluation.session import Evaluation
from cog.records import CORPUS, VOCABULARY, Generation, Segment

MAX_ORDER = 6  # lengths 1 to 6 are counted apart, as in the paper's table; longer ones together
LENGTHS = tuple(range(1, MAX_ORDER + 1))
COLUMNS = ("texts", "tokens", "copied", "segments", "copies", "words", "steps", "sources", "run")
PLACE = {name: number for number, name in enumerate(COLUMNS)}
CountTokens = Callable[[str], int]


def _ratio(name: str, upper: str, lower: str, *, top: float = inf) -> Metric:
    return Metric(f"copies/{name}", ratio_of(PLACE[upper], PLACE[lower]), NONE, top=top)


METRICS = (
    _ratio("tokens", "copied", "tokens", top=1.0),
    _ratio("steps", "copies", "segments", top=1.0),
    _ratio("tokens-per-step", "tokens", "steps"),
    _ratio("phrase-length", "copied", "copies"),
    _ratio("words", "words", "copies"),
    _ratio("sources-per-text", "sources", "texts"),
    _ratio("longest-run", "run", "texts"),
    *(
        Metric(f"copies/{name}", ratio_of(len(COLUMNS) + place, PLACE["segments"]), NONE, top=1.0)
        for place, name in enumerate([*(f"{n}-gram" for n in LENGTHS), "longer"])
    ),
)


def find_reason_against(run: Evaluation) -> str:
    """Why a system has no such scores; empty if it has."""
    return "" if run.system.name in COPYING else "copies nothing"


def measure(run: Evaluation, seeds: tuple[SeedResult, ...]) -> list[Measured]:
    """Count the copies of the texts (CoG, table 2)."""
    rows = np.array(
        [
            [
                count_copies(text.generation, lambda words: len(run.splitter.encode(words)))
                for text in seed.texts
            ]
            for seed in seeds
        ]
    )
    return [Measured(metric, rows) for metric in METRICS]


def count_copies(generation: Generation, count_tokens: CountTokens) -> NDArray[np.float64]:
    """Count the copies of one text.

    :param generation: The text with its citations.
    :param count_tokens: Number of prefix-encoder tokens of a copied text.
    :returns: ``COLUMNS``, then segments of 1 to 6 tokens and of more; copies of the prompt count, a
        vocabulary step is one token, whatever text it completes. *Shape:* ``(16,)``
    """
    segments = generation.segments
    is_copy = [segment.origin != VOCABULARY for segment in segments]
    tokens = [
        count_tokens(segment.text) if copied else 1
        for segment, copied in zip(segments, is_copy, strict=True)
    ]
    copied = [count for count, flag in zip(tokens, is_copy, strict=True) if flag]
    sources = {segment.document_id for segment in segments if segment.origin == CORPUS}
    num_words = sum(len(s.text.split()) for s in segments if s.origin != VOCABULARY)
    found = {
        "texts": 1,
        "tokens": sum(tokens),
        "copied": sum(copied),
        "segments": len(segments),
        "copies": len(copied),
        "words": num_words,
        "steps": generation.num_steps,
        "sources": len(sources),
        "run": find_longest_run(segments, tokens),
    }
    lengths = np.bincount(np.minimum(tokens, MAX_ORDER + 1), minlength=MAX_ORDER + 2)[1:]
    return np.array([*(found[name] for name in COLUMNS), *lengths], dtype=np.float64)


def find_longest_run(segments: Sequence[Segment], tokens: Sequence[int]) -> int:
    """Most tokens copied from one place in one go.

    Adjacent copies that also lie side by side in their document are one run.
    """
    longest = run = 0
    before: Segment | None = None
    for segment, count in zip(segments, tokens, strict=True):
        if segment.origin != CORPUS:
            run, before = 0, None
            continue
        follows = (
            before is not None
            and before.document_id == segment.document_id
            and before.char_end == segment.char_start
        )
        run = run + count if follows else count
        before = segment
        longest = max(longest, run)
    return longest
