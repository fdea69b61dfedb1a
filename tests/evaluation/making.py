"""Evaluation results made by hand, whose texts copy from sources that do not exist."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cog.baselines.system import System, take_used
from cog.evaluation.metrics.catalogue import METRICS
from cog.evaluation.metrics.metric import Measured, make_score
from cog.evaluation.protocol import Protocol, make_protocol
from cog.evaluation.records import EvaluatedText, EvaluationResult, Score, SeedResult
from cog.evaluation.store import EvaluationStore
from cog.params import EvaluateParams
from cog.paths import ProjectPaths
from cog.records import CORPUS, VOCABULARY, Decoding, Generation, Segment

SETTINGS = EvaluateParams("default", 4, 1, 2, 8, 16, "packaged", (22, 29))
DECODING = Decoding("nucleus", 0.95, 0, 16, 16, 0.0)


def protocol(**changes: Any) -> Protocol:  # noqa: ANN401
    """The default protocol, with changes."""
    return replace(make_protocol("default", SETTINGS), **changes)


def system(corpus: str, **changes: Any) -> System:  # noqa: ANN401
    """CoG on a corpus, with changes; those of its decoding too."""
    known = Decoding.__dataclass_fields__
    decoding = replace(DECODING, **{n: changes.pop(n) for n in list(changes) if n in known})
    name = changes.pop("name", "cog")
    values = {"index": corpus[0] * 64, "documents": "e" * 64, "model": "m" * 64}
    return System(name, corpus, take_used(name, decoding), **(values | changes))


def documents(count: int) -> list[str]:
    """As many documents as there are texts."""
    return [f"d{i}" for i in range(count)]


def score(
    name: str,
    rows: Sequence[Sequence[float]],
    reference: Sequence[Sequence[float]] | None = None,
    *,
    note: str = "",
) -> Score:
    """A score of rows, one per prompt and document."""
    of_reference = None if reference is None else np.array(reference, dtype=float)
    measured = Measured(METRICS[name], np.array([rows], dtype=float), of_reference, note)
    return make_score(measured, documents(len(rows)))


def rep(values: Sequence[float], reference: Sequence[float] | None = None, note: str = "") -> Score:
    """Rep-2 of single texts, beside that of what really follows."""
    rows, others = (
        None if each is None else [[v, 0.0, 0.0, 1.0, 9.0] for v in each]
        for each in (values, reference)
    )
    assert rows is not None
    return score("repetition/rep-2", rows, others, note=note)


def copied(values: Sequence[float]) -> Score:
    """Share of copied tokens, a score that only describes."""
    return score("copies/tokens", [[1, 100, 100 * v, *[1] * 13] for v in values])


def mauve(num_alike: int, num_texts: int) -> Score:
    """MAUVE of texts of which some lie where the references do."""
    own = np.arange(num_texts) % 10
    other = np.where(np.arange(num_texts) < num_alike, own, 50 + own)
    return score("quality/mauve", np.stack([own, other], axis=1).tolist())


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
    generation = Generation(
        f"Prompt {prompt_id}", joined, corpus, "d" * 64, "m" * 64, DECODING, 3, 9, {}, segments
    )
    return EvaluatedText(prompt_id, " and what really follows", generation)


def result(
    corpus: str,
    scores: Sequence[Score],
    **changes: Any,  # noqa: ANN401
) -> EvaluationResult:
    """An evaluation of a corpus on the prompts of ``village``."""
    num_prompts = max([each.num_texts for each in scores] + [2])
    texts = tuple(text(f"p{i}", corpus=corpus) for i in range(num_prompts))
    values: dict[str, Any] = {
        "system": system(corpus),
        "protocol": protocol(),
        "prompt_corpus": "village",
        "num_held_out": num_prompts,
        "num_qualifying": num_prompts,
        "prompt_ids": tuple(each.prompt_id for each in texts),
        "document_ids": tuple(documents(num_prompts)),
        "prompts_digest": "p" * 32,
        "seeds": (SeedResult(0, texts),),
        "scores": tuple(scores),
        "seconds": {},
        "created_at": "2026-01-01T00:00:00+00:00",
    }
    return EvaluationResult(**(values | changes))


def save(paths: ProjectPaths, made: EvaluationResult) -> None:
    """Keep a result where its corpus's are."""
    EvaluationStore(paths.corpus(made.corpus).evaluations).save_result(made)
