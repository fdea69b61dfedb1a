"""A training run of RETRO in a project: a corpus id goes in, a saved adapter comes out.

The folder holds the adapter, and in ``run/`` what the run needs to go on: checkpoints and metrics.
Whatever ends the run, the adapter is written before.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn

from cog.baselines.retro.adapter import make_adapter
from cog.baselines.retro.batches import RetroBatch, RetroBatches
from cog.baselines.retro.config import make_config
from cog.baselines.retro.examples import RetroExamples, load_examples
from cog.baselines.retro.folder import (
    ADAPTER_FOLDER,
    CONFIG_FILE,
    open_retro_index,
    save_adapter,
)
from cog.baselines.retro.trainee import RetroObjective, RetroTrainee, measure
from cog.index.read.reader import PhraseIndex
from cog.model.load import load_model
from cog.model.matrices import choose_precision
from cog.params import Params, RetroParams
from cog.paths import ProjectPaths
from cog.progress import Progress, SilentProgress
from cog.records import BFLOAT16
from cog.training.checkpoint import RunIdentity
from cog.training.loop import Outcome, TrainingLoop, Validate
from cog.training.reporting import LogMetrics, tell_peak_flops
from cog.training.request import Follow, follow_run, go_on_or_begin_anew
from cog.training.run_folder import (
    check_shared,
    find_start,
    hold_run_folder,
    make_accelerator,
)
from cog.training.schedule import Budget

# what may differ between a run and the one that goes on with it
FREE = ("max_steps", "validation_batches", "validation_steps", "checkpoint_steps")
LOGGED = ("chunk_tokens", "num_neighbours", "windows_per_batch", "learning_rate", "seed")


@dataclass(frozen=True, slots=True)
class RetroJob:
    """What to fit an adapter on, for how long, into which folder."""

    corpus_id: str
    settings: RetroParams
    budget: Budget
    out: Path
    is_resumed: bool  # from the last checkpoint there
    device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RetroReport(Outcome):
    """What a run did."""

    folder: str
    corpus: str
    num_windows: int
    gates: tuple[float, ...]  # how far each is open, from the first layer on


def train_adapter(
    paths: ProjectPaths,
    params: Params,
    job: RetroJob,
    *,
    progress: Progress,
    log: LogMetrics | None,
) -> RetroReport:
    """Fit an adapter on the documents of a corpus and its index, and save it.

    Raises ``CheckpointError`` if the folder is taken, or its checkpoint is of something else;
    ``TrainingError`` if the corpus is too small, or the loss is not finite (the last good adapter
    is written even so).
    """
    accelerator = make_accelerator(job.device)
    if not accelerator.is_main_process:
        progress = SilentProgress()
    check_shared(job.out, accelerator)
    with open_retro_index(paths, params, job.corpus_id) as index:
        with accelerator.main_process_first():
            checkpoint = find_start(
                job.out,
                is_resumed=job.is_resumed,
                config=CONFIG_FILE,
                run="name another --out, or remove it",
                progress=progress,
            )
        run = _open_run(job, paths.model(params.model), index, accelerator, progress, log)
    with hold_run_folder(job.out, is_main=accelerator.is_main_process):
        if checkpoint is not None:
            run.loop.resume()
        outcome = _fit(run, progress)
    return RetroReport(
        **asdict(outcome),
        folder=str(job.out),
        corpus=job.corpus_id,
        num_windows=run.num_windows,
        gates=tuple(round(gate, 4) for gate in run.trainee.adapter.gates),
    )


@dataclass(frozen=True, slots=True)
class _Run:
    job: RetroJob
    index: str
    model: str
    trainee: RetroTrainee
    train: RetroBatches
    num_windows: int
    held_out: Sequence[RetroBatch]
    loop: TrainingLoop


def _open_run(
    job: RetroJob,
    model_folder: Path,
    index: PhraseIndex,
    accelerator: Accelerator,
    progress: Progress,
    log: LogMetrics | None,
) -> _Run:
    settings = job.settings
    model = load_model(model_folder, device=accelerator.device.type, keeps_modules=True)
    config = make_config(model, settings)
    with accelerator.main_process_first():
        examples = load_examples(index, model, config=config, settings=settings, progress=progress)
    windows = examples.list_learnable()
    set_seed(settings.seed)  # here: what was done before depends on what was kept from other runs
    adapter = make_adapter(config, seed=settings.seed)
    is_half = choose_precision(settings.precision, accelerator.device) == BFLOAT16
    trainee = RetroTrainee(model, adapter, is_half=is_half)
    objective = RetroObjective(
        trainee, learning_rate=settings.learning_rate, gate_rate=settings.gate_rate
    )
    loop = TrainingLoop(
        trainee,
        objective=objective,
        settings=settings,
        budget=job.budget,
        accelerator=accelerator,
        identity=RunIdentity(
            architecture={**asdict(config), "cross_layers": list(config.cross_layers)},
            examples=examples.folder.name,
            batches={name: v for name, v in asdict(settings).items() if name not in FREE},
        ),
        out=job.out,
        progress=progress,
        log=log,
    )
    return _Run(
        job=job,
        index=index.digest,
        model=model.fingerprint,
        trainee=trainee,
        train=RetroBatches(examples, windows, settings),
        num_windows=len(windows),
        held_out=_make_held_out(examples, settings, progress),
        loop=loop,
    )


def _make_held_out(
    examples: RetroExamples, settings: RetroParams, progress: Progress
) -> Sequence[RetroBatch]:
    num_windows = len(examples.held_out)
    if num_windows == 0 or settings.validation_batches == 0:
        progress.say("no validation: too few documents, or none is asked for")
        return []
    batches = RetroBatches(examples, examples.held_out, settings)
    num_batches = min(settings.validation_batches, -(-num_windows // settings.windows_per_batch))
    return [batches.make(number) for number in range(num_batches)]


def _make_validation(run: _Run) -> Validate | None:
    if not run.held_out:
        return None
    alone: list[float] = []  # what the prefix encoder does by itself never changes

    def validate(network: nn.Module) -> Mapping[str, float]:
        found = measure(network, run.held_out, alone=alone[0] if alone else None)
        alone[:] = [found["loss_without"]]
        return found

    return validate


def _fit(run: _Run, progress: Progress) -> Outcome:
    trainee = run.trainee

    def write(outcome: Outcome | None) -> None:
        training = _list_facts(run, outcome)
        save_adapter(run.job.out, trainee.adapter, model=run.model, training=training)
        progress.say(f"adapter written to {run.job.out}")

    return run.loop.run(
        map(run.train.make, run.loop.number_batches()),
        validate=_make_validation(run) if run.loop.accelerator.is_main_process else None,
        write=write,
        peak_flops=tell_peak_flops(trainee.device, progress, is_half=trainee.is_half),
    )


def _list_facts(run: _Run, outcome: Outcome | None) -> dict[str, Any]:
    figures = {} if outcome is None else {**outcome.metrics, **outcome.validation}
    return {
        "corpus": run.job.corpus_id,
        "index": run.index,
        "windows": run.num_windows,
        **asdict(run.loop.position),
        "metrics": figures,
        "settings": asdict(run.job.settings),
    }


def train_retro(
    paths: ProjectPaths,
    params: Params,
    corpus_id: str,
    *,
    max_steps: int | None = None,
    max_seconds: float | None = None,
    out: Path | None = None,
    is_resumed: bool,
    device: str,
    follow: Follow,
) -> RetroReport:
    """Fit an adapter and log how it goes, to the steps of params.yaml unless there is a limit.

    ``out`` is ``models/retro`` unless given.
    """
    if max_steps is None and max_seconds is None:
        max_steps = params.retro.max_steps
    job = RetroJob(
        corpus_id=corpus_id,
        settings=params.retro,
        budget=Budget(max_steps, max_seconds),
        out=out or paths.root / ADAPTER_FOLDER,
        is_resumed=is_resumed,
        device=device,
    )
    described = {name: str(getattr(params.retro, name)) for name in LOGGED}
    described["corpus"] = job.corpus_id
    label = f"retro {job.corpus_id}"
    with follow_run(label, job.out, job.budget, described, follow) as (progress, log):
        return train_adapter(paths, params, job, progress=progress, log=log)


def train_retro_on_corpus(
    paths: ProjectPaths, params: Params, corpus_id: str, *, follow: Follow
) -> RetroReport:
    """Fit an adapter on a corpus, for the pipeline.

    A run that broke off goes on; an adapter that was finished, or is of something else, is
    replaced.
    """
    out = paths.corpus(corpus_id).retro
    return go_on_or_begin_anew(
        out,
        config=CONFIG_FILE,
        max_steps=params.retro.max_steps,
        run=lambda: train_retro(
            paths, params, corpus_id, out=out, is_resumed=True, device="auto", follow=follow
        ),
    )
