"""What a run tells while it runs: steps go in, lines, bars and a file of metrics come out.

And what speed is told beside: that of the device at its best.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from cog.atomic import write_text_atomically
from cog.progress import Progress
from cog.training.schedule import Budget

LogMetrics = Callable[[int, Mapping[str, float]], None]
EARLY_STEPS = 10
SAID_SECONDS = 20.0


class MetricsFile:
    """A file of metrics, one JSON object a step; a run that goes on cuts what it will do again."""

    def __init__(self, path: Path, *, step: int) -> None:
        lines = _iter_lines(path) if step else ()  # at step 0 all of it is done again
        kept = [json.dumps(each) + "\n" for each in lines if each["step"] <= step]
        write_text_atomically(path, "".join(kept))
        self._path = path

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Append one line."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step, **metrics}) + "\n")


def load_metrics(path: Path, *, step: int) -> dict[str, float]:
    """Read what a run wrote at a step."""
    metrics: dict[str, float] = {}
    for content in _iter_lines(path):
        if content.pop("step") == step:
            metrics |= content
    return metrics


def _iter_lines(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        try:
            yield json.loads(line)
        except ValueError:
            return  # the line that a killed run was writing


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


# dense bf16 tensor-core peaks from the makers' data sheets; the first name that fits counts
KNOWN_PEAKS = {
    "B200": 2250e12,
    "H200": 989.4e12,
    "GH200": 989.4e12,
    "H100 PCIe": 756.5e12,
    "H100": 989.4e12,
    "L40S": 362e12,
    "A100": 312e12,
    "L40": 181e12,
    "L4": 121e12,
}
MEASURED_SIZE = {"cpu": 768, "cuda": 8192}
MEASURED_ROUNDS = 5


def tell_peak_flops(device: torch.device, progress: Progress, *, is_half: bool = False) -> float:
    """Find the peak of a device, and say it and where it is from."""
    peak, where = get_peak_flops(device, is_half=is_half)
    progress.say(f"peak of the device: {peak / 1e12:,.2f} TFLOP/s ({where})")
    return peak


def get_peak_flops(device: torch.device, *, is_half: bool = False) -> tuple[float, str]:
    """Find the peak of a device.

    A processor is measured in bf16 if ``is_half``. Second comes where the figure is from.
    """
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
        for known, peak in KNOWN_PEAKS.items():
            if known in name:
                return peak, f"{name}, data sheet, dense bf16"
    return _measure_peak_flops(device, is_half=is_half), "matrix product, measured"


def _measure_peak_flops(device: torch.device, *, is_half: bool) -> float:
    # the best of a few products of square matrices, which no real step can beat by much
    size = MEASURED_SIZE.get(device.type, 1024)
    kind = torch.bfloat16 if is_half or device.type == "cuda" else torch.float32
    left = torch.ones(size, size, dtype=kind, device=device)
    best = float("inf")
    for _ in range(MEASURED_ROUNDS):
        started = time.perf_counter()
        product = left @ left
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        del product
        best = min(best, time.perf_counter() - started)
    return 2.0 * size**3 / best
