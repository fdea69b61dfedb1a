"""Running an evaluation: a corpus, a system and a protocol go in, a scored result comes out."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from cog.baselines.systems import write_each
from cog.decoding.request import Request
from cog.errors import EvaluationError
from cog.evaluation.metrics.catalogue import GROUP_MODULES
from cog.evaluation.metrics.contamination import check_contamination
from cog.evaluation.metrics.metric import make_score
from cog.evaluation.protocol import CONTAMINATION, GROUPS, LIKELIHOOD
from cog.evaluation.records import EvaluationResult, Score, SeedResult
from cog.evaluation.rows import digest_text
from cog.evaluation.session import Evaluation, Plan, prepare
from cog.extras import require
from cog.params import Params
from cog.paths import ProjectPaths
from cog.progress import Progress
from cog.records import Decoding, Generation, Prompt

WITHOUT_TEXTS = {LIKELIHOOD, CONTAMINATION}  # groups that need none to be written


def evaluate(
    paths: ProjectPaths, params: Params, plan: Plan, progress: Progress
) -> EvaluationResult:
    """Evaluate a system on a corpus; what was written or measured before is not done again.

    The result is also kept. Raises ``EvaluationError`` if no prompt is long enough, a score is
    asked for by name that there cannot be, too much of the references is in the index, the store is
    of another version, or the disk is full.
    """
    require_packages()
    run = prepare(paths, params, plan, progress)
    run.plan = replace(run.plan, groups=choose_groups(run))
    with run.stack:
        with run.timed("contamination"):
            check_contamination(run)
        seeds = write_seeds(run) if set(run.plan.groups) - WITHOUT_TEXTS else ()
        result = EvaluationResult(
            system=run.system,
            protocol=run.plan.protocol,
            prompt_corpus=plan.prompt_corpus_id,
            num_held_out=run.selection.num_held_out,
            num_qualifying=run.selection.num_qualifying,
            prompt_ids=tuple(prompt.prompt_id for prompt in run.selection.prompts),
            document_ids=tuple(prompt.document_id for prompt in run.selection.prompts),
            prompts_digest=digest_prompts(run.selection.prompts),
            seeds=seeds,
            scores=tuple(score_seeds(run, seeds)),
            seconds=run.seconds,
            created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        return run.store.save_result(result)


def require_packages() -> None:
    """Refuse to begin without what is imported when texts are written already."""
    for package in ("scipy", "sklearn", "transformers"):
        require(package)


def digest_prompts(prompts: Sequence[Prompt]) -> str:
    """Digest prompts and what follows them, so that systems are known to have had the same."""
    texts = (text for prompt in prompts for text in (prompt.prefix, prompt.reference))
    return digest_text(*texts).hex()


def choose_groups(run: Evaluation) -> tuple[str, ...]:
    """Which groups of scores there can be, before anything is written; what is left out is said."""
    plan = run.plan
    unknown = [group for group in plan.groups if group not in GROUPS]
    if unknown:
        raise EvaluationError(
            f"scores come in the groups {', '.join(GROUPS)}", found=unknown[0], about=unknown[0]
        )
    reasons: dict[str, str] = {}
    for group in plan.groups:
        find_reason = getattr(GROUP_MODULES[group], "find_reason_against", None)
        if find_reason is not None and (reason := find_reason(run)):
            reasons[group] = reason
    groups = tuple(group for group in plan.groups if group not in reasons)
    if not groups:
        raise EvaluationError(
            f"{run.system.name} must have the scores that are asked for",
            found="; ".join(f"{group}: it {reason}" for group, reason in reasons.items()),
            run="pass --metric repetition, for one; --allow-few-texts scores few texts too",
            about=run.system.name,
        )
    for group, reason in reasons.items():
        run.progress.say(f"{group} is left out: {run.system.name} {reason}")
    return groups


def write_seeds(run: Evaluation) -> tuple[SeedResult, ...]:
    """Write the texts of every seed, or take them from disk."""
    protocol = run.plan.protocol

    def write(prompts: Sequence[Prompt], decoding: Decoding) -> Iterator[Generation]:
        with run.timed("load"):
            generator = run.get_generator()
        with run.timed("write"):
            requests = [Request(prompt.prefix, decoding) for prompt in prompts]
            yield from write_each(generator, requests, batch_size=protocol.batch_size)

    run.progress.expect(len(run.selection.prompts) * len(protocol.seeds))
    return tuple(
        run.store.complete_seed(
            run.key,
            protocol.decoding_of(run.system.decoding, seed),
            run.selection.prompts,
            generate=write,
            progress=run.progress,
        )
        for seed in protocol.seeds
    )


def score_seeds(run: Evaluation, seeds: tuple[SeedResult, ...]) -> list[Score]:
    """Score texts by every group of the plan."""
    documents = [prompt.document_id for prompt in run.selection.prompts]
    scores: list[Score] = []
    for group in run.plan.groups:
        with run.timed(group):
            measured = GROUP_MODULES[group].measure(run, seeds)
            scores += [make_score(each, documents) for each in measured]
    return scores
