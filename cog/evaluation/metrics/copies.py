"""What was copied: cited texts go in, shares, lengths and sources of their copies come out.

They describe; a text is not better for having copied more.
"""

from collections.abc import Callable, Sequence
from math import inf

import numpy as np
from numpy.typing import NDArray

from cog.baselines.system import COPYING
from cog.decoding.ranking import get_key
from cog.evaluation.metrics.metric import NONE, Measured, Metric, ratio_of
from cog.evaluation.records import SeedResult
from cog.evaluation.session import Evaluation
from cog.records import CORPUS, Generation, Segment

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
    """Count the copies of one text, by the number of prefix-encoder tokens of each.

    Gives ``COLUMNS``, then segments of 1 to 6 tokens and of more; a vocabulary step is one token,
    whatever text it completes. *Shape:* ``(16,)``
    """
    segments = generation.segments
    copies = [each for each in segments if each.origin == CORPUS]
    tokens = [count_tokens(each.text) if each.origin == CORPUS else 1 for each in segments]
    found = {
        "texts": 1,
        "tokens": sum(tokens),
        "copied": sum(tokens) - (len(segments) - len(copies)),
        "segments": len(segments),
        "copies": len(copies),
        "words": sum(len(each.text.split()) for each in copies),
        "steps": generation.num_steps,
        "sources": len({get_key(each) for each in copies}),
        "run": find_longest_run(segments, tokens),
    }
    lengths = np.bincount(np.minimum(tokens, MAX_ORDER + 1), minlength=MAX_ORDER + 2)[1:]
    return np.array([*(found[name] for name in COLUMNS), *lengths], dtype=np.float64)


def find_longest_run(segments: Sequence[Segment], tokens: Sequence[int]) -> int:
    """Most tokens copied from one place in one go.

    Adjacent copies that also lie side by side in their document are one run.
    """
    longest = run = 0
    end = None  # of a copy: its document, and where the copy ends in that
    for segment, count in zip(segments, tokens, strict=True):
        if segment.origin != CORPUS:
            end = None
            continue
        run = run + count if end == (get_key(segment), segment.char_start) else count
        end = get_key(segment), segment.char_end
        longest = max(longest, run)
    return longest
