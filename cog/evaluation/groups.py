"""Groups of scores: an evaluation and its texts go in, the scores of one group come out."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from cog.decoding.generator import CopyGenerator
from cog.decoding.request import Request
from cog.evaluation.cache import RowCache, digest_text, fill
from cog.evaluation.contamination import find_contamination
from cog.evaluation.features import compared_texts
from cog.evaluation.latency import time_plain
from cog.evaluation.metrics.segmentation_perplexity import ReferenceLikelihood, score_reference
from cog.evaluation.records import MetricValue, SeedResult
from cog.evaluation.scores import (
    score_contamination,
    score_copies,
    score_latency,
    score_mauve,
    score_perplexity,
    score_references,
    score_repetition,
)
from cog.evaluation.session import Evaluation

KEPT_REFERENCES = 8  # references after which their likelihoods are kept


def _score_quality(run: Evaluation, seeds: tuple[SeedResult, ...]) -> list[MetricValue]:
    protocol, prompts = run.plan.protocol, run.selection.prompts
    prefixes = [prompt.prefix for prompt in prompts]

    def encode(texts: Sequence[str]) -> NDArray[np.float32]:
        return run.featuriser.encode_features(
            compared_texts(protocol, prompts=prefixes, texts=texts),
            layers=protocol.featuriser_layers,
            max_tokens=protocol.max_feature_tokens,
        )

    references = encode([prompt.reference for prompt in prompts])
    generations = [encode([text.generation.text for text in seed.texts]) for seed in seeds]
    return score_mauve(
        references, generations, protocol=protocol, allow_few=run.plan.allow_few_texts
    )


def _score_repetition(run: Evaluation, seeds: tuple[SeedResult, ...]) -> list[MetricValue]:
    prefixes = [prompt.prefix for prompt in run.selection.prompts]
    return score_repetition(
        [
            compared_texts(
                run.plan.protocol,
                prompts=prefixes,
                texts=[text.generation.text for text in seed.texts],
            )
            for seed in seeds
        ]
    )


def _score_perplexity(run: Evaluation, seeds: tuple[SeedResult, ...]) -> list[MetricValue]:
    likelihoods = [
        run.judge.score_texts(
            [text.generation.prefix for text in seed.texts],
            [text.generation.text for text in seed.texts],
        )
        for seed in seeds
    ]
    return score_perplexity(likelihoods)


def _score_reference(run: Evaluation, _seeds: tuple[SeedResult, ...]) -> list[MetricValue]:
    decoding = run.plan.protocol.decoding_of(0)
    prompts = run.selection.prompts[: run.plan.protocol.max_scored_references]

    def compute(positions: list[int]) -> NDArray[np.float64]:
        run.progress.expect(len(positions))
        generator = run.get_generator()
        assert isinstance(generator, CopyGenerator)  # other systems have no such scores
        rows = []
        for i in positions:
            found = score_reference(
                generator, Request(prompts[i].prefix, decoding), prompts[i].reference
            )
            rows.append([found.log_probability, found.token_log_probability, found.num_tokens])
            run.progress.advance(1)
        return np.array(rows)

    folder = run.store.folder / run.key(decoding).folder_name / "references"
    digests = [digest_text(prompt.prefix, prompt.reference) for prompt in prompts]
    rows = fill(RowCache(folder), digests, compute, batch_size=KEPT_REFERENCES)
    return score_references(
        [ReferenceLikelihood(float(row[0]), float(row[1]), int(row[2])) for row in rows]
    )


def _score_copies(run: Evaluation, seeds: tuple[SeedResult, ...]) -> list[MetricValue]:
    return score_copies(seeds, count_tokens=lambda text: len(run.splitter.encode(text)))


def _score_latency(run: Evaluation, seeds: tuple[SeedResult, ...]) -> list[MetricValue]:
    plain_seconds, is_later = time_plain(run)
    return score_latency(
        seeds,
        batch_size=run.plan.protocol.batch_size,
        plain_seconds=plain_seconds,
        note="timed in a later run than the texts" if is_later else "",
    )


def _score_contamination(run: Evaluation, _seeds: tuple[SeedResult, ...]) -> list[MetricValue]:
    return score_contamination(find_contamination(run), limit=run.params.evaluate.max_contamination)


SCORERS: dict[str, Callable[[Evaluation, tuple[SeedResult, ...]], list[MetricValue]]] = {
    "quality": _score_quality,
    "repetition": _score_repetition,
    "perplexity": _score_perplexity,
    "reference": _score_reference,
    "copies": _score_copies,
    "latency": _score_latency,
    "contamination": _score_contamination,
}
