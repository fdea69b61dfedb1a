"""The learning rate over a run, and how much of the run is done (no torch)."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Budget:
    """When a run ends: at whichever limit is met first."""

    max_steps: int | None  # number of optimiser steps; None for no limit
    max_seconds: float | None  # number of seconds; None for no limit

    def __post_init__(self) -> None:
        limits = [limit for limit in (self.max_steps, self.max_seconds) if limit is not None]
        if not limits or min(limits) <= 0:
            raise ValueError("a run needs a positive limit of steps or of seconds")

    def progress(self, *, steps: float, seconds: float) -> float:
        """How much of the run is done: 0 at the start, 1 or more at the end."""
        shares = []
        if self.max_steps is not None:
            shares.append(steps / self.max_steps)
        if self.max_seconds is not None:
            shares.append(seconds / self.max_seconds)
        return max(shares)


def rate_factor(progress: float, *, warmup: float, final: float) -> float:
    """Factor of every learning rate: a linear rise, then a cosine (Loshchilov and Hutter 2017).

    ``progress`` is the share of the run that is done; ``warmup`` that in which the rate rises. The
    factor is positive while the run lasts if ``final`` is.
    """
    progress = min(max(progress, 0.0), 1.0)
    if progress < warmup:
        return progress / warmup
    falling = (progress - warmup) / (1.0 - warmup) if warmup < 1.0 else 0.0
    return final + (1.0 - final) * 0.5 * (1.0 + math.cos(math.pi * falling))
