"""Tuning of kNN-LM: a corpus goes in, the settings that suit its datastore best are kept beside it.

What is sought is the likelihood of references that no evaluation takes, given their prompts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from cog.baselines.knn_likelihood import (
    NUMBERS_OF_NEIGHBOURS,
    WEIGHTS,
    KnnTrial,
    LikelihoodGrid,
    Neighbourhood,
    choose_scales,
    find_neighbourhood,
    perplexity_of,
)
from cog.baselines.knn_lm import KnnSettings
from cog.baselines.knn_tuned import KnnTuning, save_knn_tuning
from cog.baselines.manifest import load_corpus_manifest
from cog.baselines.project import open_knn_lm
from cog.corpus.documents import load_prompts
from cog.decoding.request import Request
from cog.evaluation.prompts import select_prompts
from cog.evaluation.protocol import make_protocol
from cog.evaluation.tune_split import TUNING, check_tuning_prompts, take_part
from cog.model.load import CogModel, load_model
from cog.params import Params
from cog.paths import ProjectPaths
from cog.progress import Progress
from cog.records import Prompt


@dataclass(frozen=True, slots=True)
class KnnTuned:
    """A finished search.

    :param tuning: What was chosen, as it is kept.
    :param best: The trial that was chosen.
    :param trials: The best for each number of neighbours.
    :param before: What params.yaml says, and how well that predicts; None if it takes more
        neighbours than there are.
    :param perplexity_alone: Perplexity under the model without neighbours.
    """

    tuning: KnnTuning
    best: KnnTrial
    trials: tuple[KnnTrial, ...]
    before: KnnTrial | None
    perplexity_alone: float


def tune_knn_lm(
    paths: ProjectPaths,
    params: Params,
    corpus_id: str,
    *,
    num_prompts: int,
    device: str,
    progress: Progress,
) -> KnnTuned:
    """Choose the number of neighbours, the distance scale and the weight.

    :param paths: The project.
    :param params: Its parameters; the temperature stays, since only its quotient with the distance
        scale counts.
    :param corpus_id: The corpus, whose datastore must be built.
    :param num_prompts: Number of prompts, at most.
    :param device: ``cpu``, ``cuda`` or ``auto``.
    :param progress: Told of every prompt.
    :returns: The search; what was chosen lies beside the datastore.
    """
    folder = paths.model(params.model)
    model = load_model(folder, device=device, precision=params.generate.precision)
    prompts = _take_prompts(paths, params, corpus_id, model=model, num_prompts=num_prompts)
    manifest = load_corpus_manifest(paths, corpus_id, model=model.fingerprint)
    usual, num_entries = params.datastore, manifest.num_entries
    before = KnnSettings(usual.top_k, usual.weight, usual.distance_scale, usual.temperature)
    top_ks = sorted({k for k in (*NUMBERS_OF_NEIGHBOURS, before.top_k) if k <= num_entries})
    widest = replace(usual, top_k=top_ks[-1])
    generator = open_knn_lm(paths, corpus_id, model=model, settings=widest)
    decoding = params.generate.decoding
    found: list[Neighbourhood] = []
    for prompt in prompts:
        request = Request(prompt.prefix, decoding)
        found.append(find_neighbourhood(generator, request, prompt.reference, top_k=top_ks[-1]))
        progress.advance(1)
    trials, alone = _try_all(found, before, top_ks=top_ks)
    best = min(trials, key=lambda trial: trial.perplexity)
    told = None
    if before.top_k <= num_entries:
        told = KnnTrial(before, perplexity_of(found, before))
    tuning = KnnTuning(
        values=best.values,
        datastore=manifest.digest,
        model=model.fingerprint,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        record={
            "num_prompts": len(prompts),
            "num_tokens": sum(len(each.probabilities) for each in found),
            "perplexity_alone": alone,
            "before": None if told is None else told.to_json(),
            "trials": [trial.to_json() for trial in trials],
        },
    )
    save_knn_tuning(paths.corpus(corpus_id), tuning)
    return KnnTuned(tuning, best, trials, told, alone)


def _take_prompts(
    paths: ProjectPaths, params: Params, corpus_id: str, *, model: CogModel, num_prompts: int
) -> Sequence[Prompt]:
    held_out = load_prompts(paths.corpus(corpus_id).prompts)
    check_tuning_prompts(held_out, corpus_id)
    rules = make_protocol("default", params.evaluate)
    protocol = replace(rules, part=TUNING, num_prompts=num_prompts)
    own = take_part(held_out, TUNING)
    return select_prompts(
        own, splitter=model.splitter, protocol=protocol, corpus_id=corpus_id
    ).prompts


def _try_all(
    found: Sequence[Neighbourhood], before: KnnSettings, *, top_ks: Sequence[int]
) -> tuple[tuple[KnnTrial, ...], float]:
    # the best settings of every number of neighbours, and the perplexity without any
    usual = before.distance_scale / before.temperature
    weights = sorted({*WEIGHTS, before.weight})
    grid = LikelihoodGrid(top_ks, choose_scales(found, usual=usual), weights)
    for each in found:
        grid.add(each)
    return tuple(grid.iter_trials(temperature=before.temperature)), grid.perplexity_alone
