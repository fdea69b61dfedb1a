"""Evaluation results made by hand, whose texts copy from sources that do not exist."""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from cog.evaluation.protocol import Protocol, make_protocol
from cog.evaluation.records import EvaluatedText, EvaluationResult, MetricValue, SeedResult
from cog.evaluation.statistics import bootstrap_interval
from cog.params import EvaluateParams
from cog.records import CORPUS, VOCABULARY, Decoding, Generation, Segment

SETTINGS = EvaluateParams("default", 4, 1, 2, 8, 16, "packaged", [22, 29], 0.2)
DECODING = Decoding("nucleus", 0.95, 0, 16, 16, 0.0)


def protocol(**changes: Any) -> Protocol:  # noqa: ANN401
    """The default protocol, with changes of its rules and of its decoding."""
    of_decoding = {each.name for each in fields(Decoding)} & set(changes)
    made = make_protocol("default", SETTINGS, DECODING)
    made = made.with_decoding(**{name: changes.pop(name) for name in of_decoding})
    return replace(made, **changes)


def metric(
    name: str, per_prompt: Sequence[float], *, higher: bool | None = True, note: str = ""
) -> MetricValue:
    """A score with a value per prompt."""
    interval = bootstrap_interval(np.array(per_prompt))
    return MetricValue(
        name,
        interval.mean,
        interval.low,
        interval.high,
        len(per_prompt),
        (interval.mean,),
        tuple(per_prompt),
        higher,
        note,
    )


def whole_metric(name: str, mean: float, half: float, *, num_texts: int = 200) -> MetricValue:
    """A score of all texts together."""
    return MetricValue(name, mean, mean - half, mean + half, num_texts, (mean,), (), True, "")


def text(prompt_id: str, *, corpus: str, words: str = "water") -> EvaluatedText:
    """A text of two copies of two documents around a vocabulary token."""
    segments = (
        Segment(f" {words} runs", CORPUS, 0.5, "doc-1", "The <mill>", 4, 15, "CC0-1.0", ""),
        Segment(" &", VOCABULARY, 0.25),
        Segment(
            " of the river",
            CORPUS,
            0.125,
            "doc-2",
            "River",
            0,
            13,
            "CC0-1.0",
            "https://a.example/r",
        ),
    )
    joined = "".join(segment.text for segment in segments)
    decoding = Decoding("nucleus", 0.95, 0, 16, 16, 0.0)
    generation = Generation(
        f"Prompt {prompt_id}", joined, corpus, "d" * 64, "m" * 64, decoding, 3, 9, {}, segments
    )
    return EvaluatedText(prompt_id, " and what really follows", generation)


def result(
    corpus: str,
    metrics: Sequence[MetricValue],
    **changes: Any,  # noqa: ANN401
) -> EvaluationResult:
    """An evaluation of a corpus on the prompts of ``village``."""
    num_prompts = max([len(each.per_prompt) for each in metrics] + [2])
    texts = tuple(text(f"p{i}", corpus=corpus) for i in range(num_prompts))
    values: dict[str, Any] = {
        "corpus": corpus,
        "prompt_corpus": "village",
        "system": "cog",
        "index": corpus[0] * 64,
        "documents": "e" * 64,
        "model": "m" * 64,
        "num_index_words": 1000,
        "num_held_out": num_prompts,
        "num_qualifying": num_prompts,
        "protocol": protocol(),
        "seeds": (SeedResult(0, texts),),
        "metrics": tuple(metrics),
        "seconds": {},
        "created_at": "2026-01-01T00:00:00+00:00",
    }
    return EvaluationResult(**(values | changes))
