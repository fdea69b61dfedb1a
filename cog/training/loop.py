"""The loop: batches go in, optimiser steps are taken, checkpoints and metrics come out.

One device or many: ``accelerate`` wraps model and optimiser. Before every update the loss and the
norm of the gradients are looked at, so what is in memory is always good.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor, nn

from cog.errors import DamagedCheckpointError, TrainingError
from cog.params import RetroParams
from cog.profiles import LoopProfile
from cog.progress import Progress
from cog.training.checkpoint import (
    RunIdentity,
    RunPosition,
    find_checkpoints,
    get_random_states,
    load_checkpoint,
    save_checkpoint,
)
from cog.training.objective import TOTAL, LoopBatch, Objective
from cog.training.reporting import LogMetrics, Meter, MetricsFile, load_metrics
from cog.training.run_folder import CHECKPOINTS, METRICS, StopRequest, watch_signals
from cog.training.schedule import Budget, rate_factor

BETAS = (0.9, 0.95)
LOGGED_STEPS = 10  # between two points in MLflow

Validate = Callable[[nn.Module], Mapping[str, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a run ended; what was done before a break counts."""

    reason: str  # why it ended: `budget` or the name of a signal
    steps: int
    seconds: float
    num_tokens: int
    steps_per_second: float
    tokens_per_second: float
    peak_share: float
    metrics: Mapping[str, float]  # metrics of the last step, of the time before if none was taken
    validation: Mapping[str, float]  # metrics of the last validation; empty if there was none


class TrainingLoop:
    """A run: model and optimiser, and how far they are.

    Progress is told of steps, or of seconds, and of how it goes; ``log`` is given the metrics of
    every few steps by the first process.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        objective: Objective,
        settings: LoopProfile | RetroParams,
        budget: Budget,
        accelerator: Accelerator,
        identity: RunIdentity,
        out: Path,
        progress: Progress,
        log: LogMetrics | None,
    ) -> None:
        self._objective, self._settings = objective, settings
        self._budget, self.accelerator = budget, accelerator
        # a step's batches are dealt to the processes by number, so their number is part of the run
        batches = {**identity.batches, "num_processes": accelerator.num_processes}
        self._identity = replace(identity, batches=batches)
        self._checkpoints, self._metrics = out / CHECKPOINTS, out / METRICS
        self._progress = progress
        self._log = log if accelerator.is_main_process else None
        self.model = model
        optimizer = torch.optim.AdamW(
            _split_decay(objective.group_parameters(), weight_decay=settings.weight_decay),
            betas=BETAS,
            fused=accelerator.device.type == "cuda",
        )
        self._rates = [float(group["lr"]) for group in optimizer.param_groups]
        self._wrapped, self._optimizer = accelerator.prepare(model, optimizer)
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self.position = RunPosition(step=0, seconds=0.0, num_tokens=0)
        self._file: MetricsFile | None = None  # of the first process, while it runs

    def resume(self) -> None:
        """Go back to the newest checkpoint that is whole; those that are damaged are told."""
        damaged: list[DamagedCheckpointError] = []
        for checkpoint in reversed(find_checkpoints(self._checkpoints)):
            try:
                self.position = load_checkpoint(
                    checkpoint,
                    model=self.model,
                    optimizer=self._optimizer.optimizer,
                    identity=self._identity,
                    process=self.accelerator.process_index,
                )
            except DamagedCheckpointError as error:
                damaged.append(error)
                continue
            for damage in damaged:
                self._progress.say(
                    f"{Path(damage.about).name} is damaged: going on from the one before"
                )
            self._progress.say(f"resumed at step {self.position.step}")
            is_by_steps = self._budget.max_steps is not None
            position = self.position
            self._progress.advance(position.step if is_by_steps else int(position.seconds))
            return
        raise damaged[0]

    def save(self) -> None:
        """Save a checkpoint: the first process writes, each gives its random states."""
        random_states = gather_object([get_random_states()])
        if self.accelerator.is_main_process:
            save_checkpoint(
                self._checkpoints,
                model=self.model,
                optimizer=self._optimizer.optimizer,
                position=self.position,
                identity=self._identity,
                random_states=random_states,
            )
        self.accelerator.wait_for_everyone()

    def number_batches(self) -> Iterator[int]:
        """Numbers of the batches that this process will ask for, from where the run is."""
        number = self.position.step * self._settings.accumulation_steps
        while True:
            yield number * self.accelerator.num_processes + self.accelerator.process_index
            number += 1

    def run(
        self,
        batches: Iterator[LoopBatch],
        *,
        validate: Validate | None,
        write: Callable[[Outcome | None], None],
        peak_flops: float,
        is_measured_first: bool = False,
    ) -> Outcome:
        """Train until the budget is used, or the run is asked to stop; then write what was trained.

        :param batches: Batches in the order of :meth:`number_batches`.
        :param validate: Measures the model on held-out text; None for no validation.
        :param write: Writes the model, with how the run ended; None if it failed. Called by the
            first process, whatever happens: what is in memory is the last good model.
        :param peak_flops: Floating point operations per second that one device can do.
        :param is_measured_first: Whether the model is validated before its first step, too.
        :returns: How it ended; a checkpoint of that moment is on disk.
        :raises TrainingError: If the loss is not finite.
        """
        if self.accelerator.is_main_process:
            self._file = MetricsFile(self._metrics, step=self.position.step)
        outcome: Outcome | None = None
        with watch_signals() as stop:
            try:
                if is_measured_first and self.position.step == 0:
                    self._tell(self._validate(validate))
                outcome = self._train(batches, validate=validate, stop=stop, peak_flops=peak_flops)
            finally:
                if self.accelerator.is_main_process:
                    write(outcome)
        self.accelerator.wait_for_everyone()  # what is written is there for all
        return outcome

    def _train(
        self,
        batches: Iterator[LoopBatch],
        *,
        validate: Validate | None,
        stop: StopRequest,
        peak_flops: float,
    ) -> Outcome:
        start, settings = self.position, self._settings
        meter = Meter(
            self._budget,
            self._progress,
            peak_flops=peak_flops * self.accelerator.num_processes,
            first_step=start.step,
            used_seconds=start.seconds,
        )
        metrics, validation = self._recall()
        while not (reason := self._find_end(stop, seconds := self._share_clock(meter))):
            metrics = self._take_step(batches, meter, seconds=seconds)
            self._write(metrics)
            if self.position.step % settings.validation_steps == 0:
                validation = self._validate(validate)
                self._tell({**metrics, **validation})
            elif self.position.step % LOGGED_STEPS == 0:
                self._tell(metrics)
            if self.position.step % settings.checkpoint_steps == 0:
                self.save()
        is_due = self.position.step % settings.validation_steps > 0
        if is_due and not (self.position == start and validation):
            validation = self._validate(validate)
            self._tell({**metrics, **validation})
        if self.position.step % settings.checkpoint_steps or self.position == start:
            self.save()
        return Outcome(
            reason=reason,
            steps=self.position.step,
            seconds=self.position.seconds,
            num_tokens=self.position.num_tokens,
            steps_per_second=meter.steps_per_second,
            tokens_per_second=meter.tokens_per_second,
            peak_share=meter.peak_share,
            metrics=metrics,
            validation=validation,
        )

    def _recall(self) -> tuple[Mapping[str, float], Mapping[str, float]]:
        # what was measured where the run goes on, so that one with nothing left to do still has it
        if self.position.step == 0 or not self.accelerator.is_main_process:
            return {}, {}
        metrics = load_metrics(self._metrics, step=self.position.step)
        validation = {k: value for k, value in metrics.items() if k.startswith("validation/")}
        return {k: value for k, value in metrics.items() if k not in validation}, validation

    def _write(self, metrics: Mapping[str, float]) -> None:
        if self._file is not None:
            self._file.write(self.position.step, metrics)

    def _tell(self, metrics: Mapping[str, float]) -> None:
        if self._log is not None and metrics:
            self._log(self.position.step, metrics)

    def _share_clock(self, meter: Meter) -> float:
        # The first process's seconds: rates and the end of a budget of seconds depend on them, and
        # with a clock of its own in each process the copies of the model would drift apart.
        seconds = meter.seconds if self.accelerator.is_main_process else 0.0
        return self._sum(torch.tensor([seconds], dtype=torch.float64))[0]

    def _find_end(self, stop: StopRequest, seconds: float) -> str:
        if any(self._sum(torch.tensor([float(stop.name != "")]))):  # all end together
            return stop.name or "a signal to another process"
        is_done = self._budget.progress(steps=self.position.step, seconds=seconds) >= 1.0
        return "budget" if is_done else ""

    def _sum(self, values: Tensor) -> list[float]:
        # over all processes
        if self.accelerator.num_processes > 1:
            values = self.accelerator.reduce(values.to(self.accelerator.device), "sum")
        return values.tolist()

    def _take_step(
        self, batches: Iterator[LoopBatch], meter: Meter, *, seconds: float
    ) -> dict[str, float]:
        self._wrapped.train()
        step_batches, sums = self._accumulate(batches)
        norm = self.accelerator.clip_grad_norm_(self._parameters, self._settings.max_gradient_norm)
        # of all processes, so that a loss that is not finite ends them all
        parts = torch.stack(list(sums.values())).double() / self.accelerator.num_processes
        counts = (
            sum(batch.num_tokens for batch in step_batches),
            sum(map(self._objective.count_operations, step_batches)),
        )
        *means, num_tokens, operations = self._sum(torch.cat([parts, parts.new_tensor(counts)]))
        losses = dict(zip(sums, means, strict=True))
        total, gradient_norm = losses[TOTAL], float(norm)
        if not (math.isfinite(total) and math.isfinite(gradient_norm)):
            self._optimizer.zero_grad(set_to_none=True)
            raise self._not_finite(step_batches, total, gradient_norm)
        factor = self._update(seconds)
        self.position = RunPosition(
            step=self.position.step + 1,
            seconds=meter.seconds,
            num_tokens=self.position.num_tokens + int(num_tokens),
        )
        meter.count(step=self.position.step, num_tokens=int(num_tokens), operations=operations)
        metrics = {
            **losses,
            **self._objective.describe(step_batches),
            "gradient_norm": gradient_norm,
            "rate_factor": factor,
            "tokens_per_second": meter.tokens_per_second,
            "steps_per_second": meter.steps_per_second,
            "peak_share": meter.peak_share,
        }
        meter.say(metrics)
        return metrics

    def _accumulate(
        self, batches: Iterator[LoopBatch]
    ) -> tuple[Sequence[LoopBatch], Mapping[str, Tensor]]:
        num_batches = self._settings.accumulation_steps
        step_batches: list[LoopBatch] = []
        sums: dict[str, Tensor] = {}
        for number in range(num_batches):
            batch = next(batches)
            step_batches.append(batch)
            is_last = number == num_batches - 1  # gradients travel between devices with it only
            with nullcontext() if is_last else self.accelerator.no_sync(self._wrapped):
                losses = self._objective.compute_losses(self._wrapped, batch)
                self.accelerator.backward(losses[TOTAL] / num_batches)
            for name, loss in losses.items():
                part = loss.detach().float() / num_batches
                sums[name] = sums[name] + part if name in sums else part
        return step_batches, sums

    def _update(self, seconds: float) -> float:
        settings = self._settings
        factor = rate_factor(
            self._budget.progress(steps=self.position.step + 0.5, seconds=seconds),
            warmup=settings.warmup_share,
            final=settings.final_rate_share,
        )
        for group, rate in zip(self._optimizer.param_groups, self._rates, strict=True):
            group["lr"] = rate * factor
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        return factor

    def _validate(self, validate: Validate | None) -> Mapping[str, float]:
        if validate is None:
            return {}
        validation = {f"validation/{name}": value for name, value in validate(self.model).items()}
        self.model.train()
        self._write(validation)
        said = " ".join(f"{k.removeprefix('validation/')} {v:.3f}" for k, v in validation.items())
        self._progress.say(f"validation at step {self.position.step}: {said}")
        return validation

    def _not_finite(
        self, step_batches: Sequence[LoopBatch], loss: float, norm: float
    ) -> TrainingError:
        numbers = ", ".join(str(batch.number) for batch in step_batches)
        documents = "; ".join(map(self._objective.name_documents, step_batches))
        return TrainingError(
            f"the loss must be finite at step {self.position.step + 1}",
            found=f"loss {loss}, gradient norm {norm} on batch {numbers} of {documents}",
            run="the model of the step before is kept; look at these documents, or lower the rates",
        )


def _split_decay(
    groups: list[dict[str, object]], *, weight_decay: float
) -> list[dict[str, object]]:
    # vectors (biases, norms) do not decay
    split: list[dict[str, object]] = []
    for group in groups:
        parameters = list(group["params"])  # type: ignore[call-overload]
        rest = {name: value for name, value in group.items() if name != "params"}
        for is_matrix, decay in ((True, weight_decay), (False, 0.0)):
            chosen = [p for p in parameters if (p.ndim > 1) is is_matrix]
            if chosen:
                split.append({**rest, "params": chosen, "weight_decay": decay})
    return split
