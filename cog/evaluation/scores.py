"""Scores: the texts of an evaluation go in, metric values with their intervals come out."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

from cog.errors import EvaluationError
from cog.evaluation.metrics.contamination import ORDER as GRAM_ORDER
from cog.evaluation.metrics.contamination import Shares
from cog.evaluation.metrics.latency import TOTAL, BatchSeconds, sum_batches
from cog.evaluation.metrics.mauve import (
    FEW_TEXTS,
    FewTextsWarning,
    check_num_texts,
    measure_mauve,
    score_halves,
)
from cog.evaluation.metrics.perplexity import TextLikelihood
from cog.evaluation.metrics.phrases import CountTokens, TextCopies, read_copies, summarise_copies
from cog.evaluation.metrics.repetition import ORDERS, score_texts
from cog.evaluation.metrics.segmentation_perplexity import ReferenceLikelihood
from cog.evaluation.protocol import Protocol
from cog.evaluation.records import MetricValue, SeedResult
from cog.evaluation.statistics import NORMAL_QUANTILE, Combine, bootstrap_interval

Values = NDArray[np.float64]
MIN_BATCHES = 5  # fewer say nothing about chance
NUM_HALVES = 20  # from which MAUVE's standard error is told


@dataclass(frozen=True, slots=True)
class Named:
    """What a score is called.

    :param name: ``group/name``.
    :param is_higher_better: True, False, or None for a score that only describes.
    """

    name: str
    is_higher_better: bool | None = None


def check_mauve(num_texts: int, *, allow_few: bool) -> None:
    """Refuse MAUVE where it cannot be computed, or would rank by chance.

    :param num_texts: Number of texts.
    :param allow_few: Score fewer than 50 texts too.
    :raises EvaluationError: If there are too few texts, or mauve-text is not installed.
    """
    if find_spec("mauve") is None:
        raise EvaluationError(
            "MAUVE needs mauve-text (under the GPLv3, so it is no dependency of cog)",
            found="not installed",
            run="pip install mauve-text",
            about="mauve",
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewTextsWarning)  # said in the note of the score
        check_num_texts(num_texts, allow_few=allow_few)


def score_mauve(
    references: NDArray[np.float32],
    generations: Sequence[NDArray[np.float32]],
    *,
    protocol: Protocol,
    allow_few: bool,
) -> list[MetricValue]:
    """MAUVE of every seed (CoG, section 4.1).

    :param references: Features of the references. *Shape:* ``(num_prompts, dim)``
    :param generations: Features of the generations, per seed.
    :param protocol: Scale, clusters and k-means seeds.
    :param allow_few: Score fewer than 50 texts too.
    :returns: One score; its interval is 1.96 standard errors of random halves.
    :raises EvaluationError: If there are too few texts.
    """
    buckets = protocol.mauve_buckets or None
    scores, errors = [], []
    for features in generations:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FewTextsWarning)
            score = measure_mauve(
                references,
                features,
                scaling_factor=protocol.mauve_scale,
                seeds=protocol.kmeans_seeds,
                num_buckets=buckets,
                allow_few=allow_few,
            )
        halves = score_halves(
            references,
            features,
            scaling_factor=protocol.mauve_scale,
            num_halves=NUM_HALVES,
            seed=protocol.kmeans_seeds[0],
            num_buckets=buckets,
        )
        scores.append(score)
        errors.append(float(halves.std(ddof=1)))
    means = tuple(score.mean for score in scores)
    mean, half = float(np.mean(means)), NORMAL_QUANTILE * float(np.mean(errors))
    num_texts = min(score.num_texts for score in scores)
    return [
        MetricValue(
            name="quality/mauve",
            mean=mean,
            low=max(0.0, mean - half),
            high=min(1.0, mean + half),
            num_texts=num_texts,
            per_seed=means,
            per_prompt=(),
            is_higher_better=True,
            note=_few_texts_note(num_texts),
        )
    ]


def score_repetition(seeds: Sequence[Sequence[str]]) -> list[MetricValue]:
    """Rep-2, Rep-3, Rep-4 and Diversity (CoG, section 4.1).

    :param seeds: Texts per seed.
    :returns: Four scores.
    """
    stacked = np.stack([score_texts(texts) for texts in seeds])  # (num_seeds, num_prompts, 3)
    found = [
        _score(Named(f"repetition/rep-{order}", False), stacked[:, :, i])
        for i, order in enumerate(ORDERS)
    ]
    return [*found, _score(Named("repetition/diversity", True), stacked, combine=_diversity)]


def score_perplexity(seeds: Sequence[Sequence[TextLikelihood]]) -> list[MetricValue]:
    """Perplexity of generated text given its prompt, under another language model.

    :param seeds: Likelihoods per seed.
    :returns: One score.
    """
    rows = [
        [[each.log_likelihood, each.num_tokens] for each in likelihoods] for likelihoods in seeds
    ]
    return [_score(Named("perplexity/generated", False), np.array(rows), combine=_perplexity)]


def score_references(likelihoods: Sequence[ReferenceLikelihood]) -> list[MetricValue]:
    """Perplexity of the references under the copy-generator, and under its vocabulary alone.

    :param likelihoods: One per prompt; no seed changes them.
    :returns: Two scores.
    """
    joint = [[[each.log_probability, each.num_tokens] for each in likelihoods]]
    alone = [[[each.token_log_probability, each.num_tokens] for each in likelihoods]]
    names = (Named("perplexity/reference", False), Named("perplexity/reference-tokens", False))
    return [
        _score(name, np.array(rows), combine=_perplexity)
        for name, rows in zip(names, (joint, alone), strict=True)
    ]


def score_copies(seeds: Sequence[SeedResult], *, count_tokens: CountTokens) -> list[MetricValue]:
    """What was copied: shares, lengths and sources (CoG, table 2).

    :param seeds: The generations.
    :param count_tokens: Number of prefix-encoder tokens of a copied text.
    :returns: The scores; none says by itself that a text is good.
    """
    copies = [
        [read_copies(text.generation, count_tokens=count_tokens) for text in seed.texts]
        for seed in seeds
    ]
    per_text = {
        "copies/tokens": _each(copies, lambda text: text.num_copied / max(1, text.num_tokens)),
        "copies/steps": _each(copies, lambda text: sum(text.is_copy) / max(1, len(text.is_copy))),
        "copies/sources-per-text": _each(copies, lambda text: len(text.sources)),
        "copies/longest-run": _each(copies, lambda text: text.longest_run),
        "copies/tokens-per-step": _each(
            copies, lambda text: text.num_tokens / max(1, text.num_steps)
        ),
    }
    summaries = [summarise_copies(texts) for texts in copies]
    whole = {
        **{
            f"copies/{order}-gram": [each.share_by_length[order] for each in summaries]
            for order in summaries[0].share_by_length
        },
        "copies/longer": [each.share_longer for each in summaries],
        "copies/phrase-length": [each.mean_length for each in summaries],
        "copies/words": [each.mean_words for each in summaries],
        "copies/phrase-length-variance": [each.variance_of_length for each in summaries],
        "copies/sources": [float(each.num_sources) for each in summaries],
    }
    return [
        *(_score(Named(name), values) for name, values in per_text.items()),
        *(_describe(name, values, len(copies[0])) for name, values in whole.items()),
    ]


def score_latency(
    seeds: Sequence[SeedResult], *, batch_size: int, plain_seconds: float | None, note: str = ""
) -> list[MetricValue]:
    """Seconds a text, by part, cold and warm, and against the plain language model.

    :param seeds: The generations.
    :param batch_size: Number of texts decoded together; those of the first batch are cold.
    :param plain_seconds: Seconds a text of the plain language model under ``transformers``; None if
        it was not timed.
    :param note: A warning about that time.
    :returns: Scores of the warm texts (of all, if there is one batch only) and of the cold ones.
    """
    timed = [
        sum_batches(
            [text.generation.seconds for text in seed.texts],
            [text.generation.num_tokens for text in seed.texts],
            batch_size=batch_size,
        )
        for seed in seeds
    ]
    scores = _score_warm(timed, batch_size=batch_size)
    num_cold = int(timed[0].num_texts[0])
    for i, part in enumerate(timed[0].parts):
        cold = [float(each.seconds[0, i] / each.num_texts[0]) for each in timed]
        scores.append(_describe("latency/cold" + f"-{part}" * (part != TOTAL), cold, num_cold))
    if plain_seconds is not None:
        total = next(score for score in scores if score.name == f"latency/{TOTAL}")
        plain = _describe("latency/transformers", [plain_seconds], num_cold)
        scores += [replace(plain, note=note), replace(_relate(total, plain_seconds), note=note)]
    return scores


def _score_warm(timed: Sequence[BatchSeconds], *, batch_size: int) -> list[MetricValue]:
    # numerators and denominators of batches; the mean over seeds before, since seeds share prompts
    first = timed[0].first_warm
    texts, tokens = (
        np.mean([getattr(each, name)[first:] for each in timed], axis=0)
        for name in ("num_texts", "num_tokens")
    )
    scores = []
    for i, part in enumerate(timed[0].parts):
        by_seed = np.stack([each.seconds[first:, i] for each in timed])
        pairs = np.stack([by_seed, np.broadcast_to(texts, by_seed.shape)], axis=2)
        name = Named(f"latency/{part}", False)
        scores.append(_score_batches(name, pairs, sizes=texts, batch_size=batch_size))
        if part == TOTAL:
            speed = np.stack([np.broadcast_to(tokens, by_seed.shape), by_seed], axis=2)
            name = Named("latency/tokens-per-second", True)
            scores.append(_score_batches(name, speed, sizes=texts, batch_size=batch_size))
    return scores


def _score_batches(named: Named, values: Values, *, sizes: Values, batch_size: int) -> MetricValue:
    # values: (num_seeds, num_batches, 2); every text of a batch has the batch's value
    score = _score(named, values, combine=_ratio)
    per_text = np.repeat(score.per_prompt, sizes.astype(int))
    score = replace(score, num_texts=len(per_text), per_prompt=tuple(map(float, per_text)))
    if len(sizes) >= MIN_BATCHES:
        return score
    note = f"{len(sizes)} batches of {batch_size} texts are too few for an interval"
    return replace(score, low=score.mean, high=score.mean, note=note)


def _relate(total: MetricValue, plain_seconds: float) -> MetricValue:
    ratio = _describe("latency/ratio", [total.mean / plain_seconds], total.num_texts)
    return replace(
        ratio,
        low=total.low / plain_seconds,
        high=total.high / plain_seconds,
        per_seed=tuple(each / plain_seconds for each in total.per_seed),
        is_higher_better=False,
    )


def score_contamination(shares: Shares, *, limit: float) -> list[MetricValue]:
    """How much of the references also stands in the index.

    :param shares: What was found.
    :param limit: Share of n-grams above which the score carries a warning.
    :returns: Two scores; none where no reference is long enough to tell.
    """
    if not shares.num_texts:
        return []
    name = f"contamination/{GRAM_ORDER}-gram"
    grams = _describe(f"{name}-share", [shares.of_grams], shares.num_texts)
    if shares.of_grams > limit:
        note = f"{shares.of_grams:.0%} of the references is in the index and can be copied"
        grams = replace(grams, note=note)
    return [_describe(f"{name}-texts", [shares.of_texts], shares.num_texts), grams]


def _each(
    copies: Sequence[Sequence[TextCopies]], function: Callable[[TextCopies], float]
) -> Values:
    return np.array([[function(text) for text in texts] for texts in copies], dtype=np.float64)


def _score(named: Named, values: Values, *, combine: Combine | None = None) -> MetricValue:
    # values: (num_seeds, num_prompts) or (num_seeds, num_prompts, num_columns)
    rows = values.mean(axis=0)
    interval = bootstrap_interval(rows, combine=combine)
    per_seed = [each.mean(axis=0, keepdims=True) for each in values]
    per_prompt = rows if combine is None else combine(rows)
    return MetricValue(
        name=named.name,
        mean=interval.mean,
        low=interval.low,
        high=interval.high,
        num_texts=len(rows),
        per_seed=tuple(float((each if combine is None else combine(each))[0]) for each in per_seed),
        per_prompt=tuple(float(each) for each in per_prompt),
        is_higher_better=named.is_higher_better,
        note="",
    )


def _describe(name: str, per_seed: Sequence[float], num_texts: int) -> MetricValue:
    # a score of all texts together that has no interval
    mean = float(np.mean(per_seed))
    return MetricValue(
        name=name,
        mean=mean,
        low=mean,
        high=mean,
        num_texts=num_texts,
        per_seed=tuple(per_seed),
        per_prompt=(),
        is_higher_better=None,
        note="",
    )


def _few_texts_note(num_texts: int) -> str:
    if num_texts >= FEW_TEXTS:
        return ""
    return f"{num_texts} texts: below {FEW_TEXTS} the order of near systems is uncertain"


def _diversity(means: Values) -> Values:
    product: Values = 100.0 * np.prod(1.0 - means / 100.0, axis=1)
    return product


def _perplexity(means: Values) -> Values:
    found: Values = np.exp(-means[:, 0] / np.maximum(means[:, 1], 1e-9))
    return found


def _ratio(means: Values) -> Values:
    found: Values = means[:, 0] / np.maximum(means[:, 1], 1e-9)
    return found
