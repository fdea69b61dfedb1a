"""What a run tells while it runs: steps go in, lines, bars and a file of metrics come out."""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from cog.progress import Progress
from cog.training.schedule import Budget

LogMetrics = Callable[[int, Mapping[str, float]], None]
EARLY_STEPS = 10
SAID_SECONDS = 20.0


class MetricsFile:
    """A file of metrics, one JSON object a step; a run that goes on cuts what it will do again."""

    def __init__(self, path: Path, *, step: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = []
        if path.is_file():
            for line in path.read_text(encoding="utf-8").splitlines():
                try:
                    if json.loads(line)["step"] <= step:
                        kept.append(line + "\n")
                except (ValueError, KeyError):
                    break  # the line that a killed run was writing
        path.write_text("".join(kept), encoding="utf-8")
        self._path = path

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Append one line."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step, **metrics}) + "\n")


def load_metrics(path: Path, *, step: int) -> dict[str, float]:
    """Read what a run wrote at a step."""
    metrics: dict[str, float] = {}
    if not path.is_file():
        return metrics
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            content = json.loads(line)
        except ValueError:
            break  # the line that a killed run was writing
        if content.pop("step", None) == step:
            metrics |= content
    return metrics


class Meter:
    """Measures the speed of a run and says how it goes."""

    def __init__(
        self,
        budget: Budget,
        progress: Progress,
        *,
        peak_flops: float,
        first_step: int,
        used_seconds: float,
    ) -> None:
        self._budget, self._progress, self._peak_flops = budget, progress, peak_flops
        self._first_step, self._used_seconds = first_step, used_seconds
        self._started = self._said = self._measured = time.monotonic()
        self._shown = used_seconds
        self._step = first_step
        self._done = (first_step, 0.0, 0.0)  # steps, tokens, operations when speed was last said
        self._tokens = self._operations = 0.0
        self.steps_per_second = self.tokens_per_second = self.peak_share = 0.0

    @property
    def seconds(self) -> float:
        """Seconds used, those of the time before included."""
        return self._used_seconds + time.monotonic() - self._started

    def count(self, *, step: int, num_tokens: int, operations: float) -> None:
        """Count a step, and show it."""
        self._step = step
        self._tokens += num_tokens
        self._operations += operations
        now = time.monotonic()
        elapsed = max(now - self._measured, 1e-9)
        steps, tokens, operations_done = self._done
        self.steps_per_second = (step - steps) / elapsed
        self.tokens_per_second = (self._tokens - tokens) / elapsed
        self.peak_share = (self._operations - operations_done) / elapsed / self._peak_flops
        if self._budget.max_steps is not None:
            self._progress.advance(1)
        else:
            num_seconds = int(self.seconds) - int(self._shown)
            self._shown = self.seconds
            self._progress.advance(num_seconds)

    def say(self, metrics: Mapping[str, float]) -> None:
        """Say how it goes: early, then every now and then."""
        taken = self._step - self._first_step
        now = time.monotonic()
        if taken == EARLY_STEPS:
            self._progress.say(
                f"first {EARLY_STEPS} steps: {self.steps_per_second:.2f} steps per second"
            )
        elif taken not in (1, EARLY_STEPS) and now - self._said < SAID_SECONDS:
            return
        self._said = now
        losses = " ".join(
            f"{name} {metrics[name]:.3f}"
            for name in ("loss", "token_loss", "phrase_loss")
            if name in metrics
        )
        self._progress.say(
            f"step {self._step}: {losses} · {self.steps_per_second:.2f} steps/s · "
            f"{self.tokens_per_second:,.0f} tokens/s · {self.peak_share:.1%} of peak · "
            f"{self.seconds_left():,.0f} s left"
        )
        if taken != 1:  # the first step is slow (memory is taken, kernels are chosen): it counts on
            self._measured, self._done = now, (self._step, self._tokens, self._operations)

    def seconds_left(self) -> float:
        """Seconds until the budget is used, at the speed so far."""
        left = []
        if self._budget.max_seconds is not None:
            left.append(self._budget.max_seconds - self.seconds)
        if self._budget.max_steps is not None and self.steps_per_second > 0:
            left.append((self._budget.max_steps - self._step) / self.steps_per_second)
        return max(0.0, min(left, default=0.0))
