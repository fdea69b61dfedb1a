"""A training run from end to end: text and a recipe go in, a model folder comes out.

The folder holds the model, and in ``run/`` what the run needs to go on: checkpoints and metrics.
Whatever ends the run, the model is written before.
"""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

from accelerate.utils import set_seed

from cog.errors import CheckpointError
from cog.model.config import CONFIG_FILE
from cog.model.fingerprint import fingerprint_model
from cog.paths import get_cache_folder
from cog.progress import Progress, SilentProgress
from cog.training.batches import iter_batches
from cog.training.building import TrainingText
from cog.training.checkpoint import RunIdentity
from cog.training.initial_model import OpenedModel, Recipe, find_bases, open_model
from cog.training.loop import Outcome, TrainingLoop
from cog.training.objective import CopyObjective, make_validation
from cog.training.output import write_model
from cog.training.preparing import TrainingData, check_phrases, prepare_data
from cog.training.reporting import LogMetrics, load_metrics, tell_peak_flops
from cog.training.request import TrainRequest
from cog.training.run_folder import (
    METRICS,
    check_shared,
    find_start,
    hold_run_folder,
    make_accelerator,
)
from cog.training.schedule import Budget

COPY, TOKENS = "copy", "tokens"
# what of a profile decides the order and content of batches
DECIDING = (
    "chunks_per_batch",
    "seeds_per_batch",
    "max_of_document",
    "accumulation_steps",
    "held_out_share",
    "min_prefix_tokens",
    "context_tokens",
    "inner_share",
    "common_weight",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainJob(TrainRequest):
    """A request with all that it leaves open: what is trained, on what, for how long."""

    recipe: Recipe
    text: TrainingText
    budget: Budget
    out: Path
    num_workers: int
    about: Mapping[str, str]  # facts for the model's card, such as where the text is from


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainReport(Outcome):
    """What a run did."""

    folder: str
    fingerprint: str
    profile: str
    objective: str
    num_documents: int
    # of the validation before the first step of a run that goes on from a model; else empty
    validation_before: Mapping[str, float]


def train(job: TrainJob, *, progress: Progress, log: LogMetrics | None) -> TrainReport:
    """Train a model.

    Progress is told of steps, or of seconds where the budget is of seconds. Where the loss is not
    finite, a ``TrainingError``, the last good model is written even so.
    """
    accelerator = make_accelerator(job.device)
    if not accelerator.is_main_process:
        progress = SilentProgress()
    check_shared(job.out, accelerator)
    with accelerator.main_process_first():
        checkpoint = find_start(
            job.out,
            is_resumed=job.is_resumed,
            config=CONFIG_FILE,
            run="name another --out; --from goes on from a model",
            progress=progress,
        )
    with hold_run_folder(job.out, is_main=accelerator.is_main_process):
        with accelerator.main_process_first():
            is_new = checkpoint is None and accelerator.is_main_process
            bases = find_bases(
                job.recipe, job.source, out=job.out, text=job.text, seed=job.seed, is_new=is_new
            )
            data = prepare_data(
                job.text,
                bases,
                job.recipe.loop,
                folder=get_cache_folder() / "examples",
                device=accelerator.device.type,
                num_workers=job.num_workers,
                seed=job.seed,
                progress=progress,
            )
        if job.objective == COPY:
            check_phrases(data)
        set_seed(job.seed)  # here: what was done before depends on what was kept from other runs
        opened = open_model(bases, job.recipe, objective=job.objective, device=accelerator.device)
        loop = TrainingLoop(
            opened.model,
            objective=CopyObjective(opened, data, job.recipe),
            settings=job.recipe.loop,
            budget=job.budget,
            accelerator=accelerator,
            identity=_identify(job, opened, data),
            out=job.out,
            progress=progress,
            log=log,
        )
        if checkpoint is not None:
            loop.resume()
        return _run(job, opened, loop, data, progress)


def _run(
    job: TrainJob,
    opened: OpenedModel,
    loop: TrainingLoop,
    data: TrainingData,
    progress: Progress,
) -> TrainReport:
    accelerator = loop.accelerator
    validate = None
    if data.held_out is not None and accelerator.is_main_process:
        validate = make_validation(
            data.held_out,
            num_batches=job.recipe.loop.validation_batches,
            losses=job.recipe.model.losses,
            device=accelerator.device,
        )

    def write(outcome: Outcome | None) -> None:
        try:
            facts = _list_facts(job, data, loop, outcome)
            write_model(job.out, opened.model.trained_weights(), opened.config, facts)
        except CheckpointError as error:
            if outcome is not None:
                raise
            progress.say(f"model not written: {error}")  # why the run failed is what must be told
        else:
            progress.say(f"model written to {job.out}")

    batches = iter_batches(data.train, loop.number_batches(), num_workers=job.num_workers)
    with closing(batches):
        outcome = loop.run(
            batches,
            validate=validate,
            is_measured_first=job.source is not None,
            write=write,
            peak_flops=tell_peak_flops(accelerator.device, progress),
        )
    return TrainReport(
        **asdict(outcome),
        folder=str(job.out),
        fingerprint=fingerprint_model(job.out),
        profile=job.recipe.name,
        objective=job.objective,
        num_documents=data.num_documents,
        validation_before=load_metrics(job.out / METRICS, step=0),
    )


def _identify(job: TrainJob, opened: OpenedModel, data: TrainingData) -> RunIdentity:
    loop = job.recipe.loop
    return RunIdentity(
        architecture={**opened.architecture, "objective": job.objective},
        examples=data.store.folder.name,
        batches={"seed": job.seed, **{name: getattr(loop, name) for name in DECIDING}},
    )


def _list_facts(
    job: TrainJob, data: TrainingData, loop: TrainingLoop, outcome: Outcome | None
) -> dict[str, str]:
    position = loop.position
    facts = {
        **job.about,
        "profile": job.recipe.name,
        "objective": job.objective,
        "documents": f"{data.num_documents:,} of {data.store.num_documents:,}, the rest held out",
        "steps": f"{position.step:,}",
        "seconds": f"{position.seconds:,.0f}",
        "tokens": f"{position.num_tokens:,}",
        "seed": str(job.seed),
    }
    before = load_metrics(job.out / METRICS, step=0)
    facts |= {f"{name} at step 0": f"{value:.4f}" for name, value in before.items()}
    if outcome is not None:
        figures = {**outcome.metrics, **outcome.validation}
        facts |= {name: f"{value:.4f}" for name, value in figures.items()}
    return facts
