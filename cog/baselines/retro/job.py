"""A training run of RETRO in a project: a corpus id goes in, a saved adapter comes out.

The folder holds the adapter, and in ``run/`` what the run needs to go on: checkpoints and metrics.
Whatever ends the run, the adapter is written before.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from accelerate import Accelerator
from accelerate.utils import set_seed
from numpy.typing import NDArray
from torch import nn

from cog.baselines.retro.adapter import make_adapter
from cog.baselines.retro.batches import RetroBatch, RetroBatches
from cog.baselines.retro.config import make_config
from cog.baselines.retro.examples import RetroExamples, load_examples
from cog.baselines.retro.folder import CONFIG_FILE, open_retro_index, save_adapter
from cog.baselines.retro.trainee import RetroObjective, RetroTrainee, measure
from cog.index.read.reader import PhraseIndex
from cog.model.load import load_model
from cog.model.matrices import choose_precision
from cog.params import Params, RetroParams
from cog.paths import ProjectPaths
from cog.progress import Progress, SilentProgress
from cog.records import BFLOAT16
from cog.training.checkpoint import RunIdentity
from cog.training.loop import LoopReports, Outcome, TrainingLoop, Validate
from cog.training.reporting import LogMetrics, tell_peak_flops
from cog.training.run_folder import (
    check_shared,
    find_start,
    hold_run_folder,
    make_accelerator,
)
from cog.training.schedule import Budget

# what may differ between a run and the one that goes on with it
FREE = ("corpora", "max_steps", "validation_batches", "validation_steps", "checkpoint_steps")


@dataclass(frozen=True, slots=True)
class RetroJob:
    """What to fit an adapter on, for how long, into which folder.

    :param settings: Section ``retro`` of params.yaml.
    :param is_resumed: Whether to go on from the last checkpoint in ``out``.
    """

    corpus_id: str
    settings: RetroParams
    budget: Budget
    out: Path
    is_resumed: bool
    device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RetroReport(Outcome):
    """What a run did.

    :param gates: How far each gate is open, from the first layer on.
    """

    folder: str
    corpus: str
    num_windows: int
    gates: tuple[float, ...]


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
        run = _open_run(job, paths.model(params.model), index, accelerator, progress)
    with hold_run_folder(job.out, is_main=accelerator.is_main_process):
        if checkpoint is not None:
            run.loop.resume(progress)
        outcome = _fit(run, progress=progress, log=log)
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
    examples: RetroExamples
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
    )
    return _Run(
        job=job,
        index=index.digest,
        model=model.fingerprint,
        trainee=trainee,
        examples=examples,
        train=_make_batches(examples, windows, settings),
        num_windows=len(windows),
        held_out=_make_held_out(examples, settings, progress),
        loop=loop,
    )


def _make_batches(
    examples: RetroExamples, windows: NDArray[np.int64], settings: RetroParams
) -> RetroBatches:
    return RetroBatches(
        examples,
        windows,
        chunk_tokens=settings.chunk_tokens,
        windows_per_batch=settings.windows_per_batch,
        seed=settings.seed,
    )


def _make_held_out(
    examples: RetroExamples, settings: RetroParams, progress: Progress
) -> Sequence[RetroBatch]:
    num_windows = len(examples.held_out)
    if num_windows == 0 or settings.validation_batches == 0:
        progress.say("no validation: too few documents, or none is asked for")
        return []
    batches = _make_batches(examples, examples.held_out, settings)
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


def _fit(run: _Run, *, progress: Progress, log: LogMetrics | None) -> Outcome:
    is_main = run.loop.accelerator.is_main_process
    trainee = run.trainee
    reports = LoopReports(
        progress=progress,
        log=log if is_main else None,
        peak_flops=tell_peak_flops(trainee.device, progress, is_half=trainee.is_half),
    )

    def write(outcome: Outcome | None) -> None:
        training = _list_facts(run, outcome)
        save_adapter(run.job.out, trainee.adapter, model=run.model, training=training)
        progress.say(f"adapter written to {run.job.out}")

    return run.loop.run(
        map(run.train.make, run.loop.number_batches()),
        validate=_make_validation(run) if is_main else None,
        write=write,
        reports=reports,
    )


def _list_facts(run: _Run, outcome: Outcome | None) -> dict[str, Any]:
    figures = {} if outcome is None else {**outcome.metrics, **outcome.validation}
    settings = asdict(run.job.settings)
    return {
        "corpus": run.job.corpus_id,
        "index": run.index,
        "windows": run.num_windows,
        **asdict(run.loop.position),
        "metrics": figures,
        "settings": {name: value for name, value in settings.items() if name != "corpora"},
    }
