"""Running an evaluation: a corpus, a system and a protocol go in, a scored result comes out."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from cog.baselines.protocol import write_each
from cog.decoding.request import Request
from cog.evaluation.contamination import check_contamination
from cog.evaluation.groups import SCORERS
from cog.evaluation.latency import time_plain
from cog.evaluation.protocol import LATENCY
from cog.evaluation.records import EvaluationResult, MetricValue, SeedResult
from cog.evaluation.results import save_result
from cog.evaluation.session import Evaluation, Plan, prepare
from cog.params import Params
from cog.paths import ProjectPaths
from cog.progress import Progress
from cog.records import Decoding, Generation, Prompt


def evaluate(
    paths: ProjectPaths, params: Params, plan: Plan, progress: Progress
) -> EvaluationResult:
    """Evaluate a system on a corpus; what was written or measured before is not done again.

    :param paths: The project.
    :param params: Its parameters.
    :param plan: What to evaluate.
    :param progress: Told of every text that is written or measured, and of what to know.
    :returns: The result, which is also kept.
    :raises EvaluationError: If the system is unknown, no prompt is long enough, MAUVE is asked for
        by name on too few texts, too much of the references is in the index, or the disk is full.
    """
    run = prepare(paths, params, plan, progress)
    with run.stack:
        with run.timed("contamination"):
            check_contamination(run)
        progress.expect(len(run.selection.prompts) * len(run.plan.protocol.seeds))
        seeds = write_seeds(run)
        if LATENCY in run.plan.groups:
            with run.timed(LATENCY):
                time_plain(run)  # at once: what else the machine does changes with time
        metrics = score_seeds(run, seeds)
        corpus_paths = paths.corpus(plan.corpus_id)
        result = EvaluationResult(
            corpus=plan.corpus_id,
            prompt_corpus=plan.prompt_corpus_id,
            system=plan.system,
            index=run.identity.index,
            documents=run.identity.documents,
            model=run.identity.model,
            num_index_words=run.identity.num_index_words,
            num_held_out=run.selection.num_held_out,
            num_qualifying=run.selection.num_qualifying,
            protocol=run.plan.protocol,
            seeds=seeds,
            metrics=tuple(metrics),
            seconds=run.seconds,
            created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        return save_result(corpus_paths, result)


def write_seeds(run: Evaluation) -> tuple[SeedResult, ...]:
    """Write the texts of every seed, or take them from disk.

    :param run: The evaluation.
    :returns: The texts, per seed.
    """
    protocol = run.plan.protocol

    def write(prompts: Sequence[Prompt], decoding: Decoding) -> Iterator[Generation]:
        with run.timed("load"):
            generator = run.get_generator()
        with run.timed("write"):
            requests = [Request(prompt.prefix, decoding) for prompt in prompts]
            yield from write_each(generator, requests, batch_size=protocol.batch_size)

    found = []
    for seed in protocol.seeds:
        found.append(
            run.store.complete_seed(
                run.key(protocol.decoding_of(seed)),
                run.selection.prompts,
                generate=write,
                progress=run.progress,
            )
        )
    return tuple(found)


def score_seeds(run: Evaluation, seeds: tuple[SeedResult, ...]) -> list[MetricValue]:
    """Score texts by every group of the plan.

    :param run: The evaluation.
    :param seeds: Its texts.
    :returns: The scores.
    """
    metrics: list[MetricValue] = []
    for group in run.plan.groups:
        with run.timed(group):
            metrics += SCORERS[group](run, seeds)
    return metrics
