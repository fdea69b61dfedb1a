"""What generators choose from: texts are written in a block, the choices of each come out.

Two ways to compute one distribution differ in its last bits, on one processor and not on another,
and a draw or a tie may fall between them. So tests compare distributions and draws, choice by
choice, and what follows a choice that fell otherwise is not compared.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest.mock import patch

import numpy as np

from cog.decoding.distribution import NextChoice
from cog.decoding.sampling import Chooser
from cog.records import Decoding

MIN_COMPARED = 0.75  # of all choices; a draw falls between two roundings once in many thousands


@dataclass
class Choices:
    """The choices of one text."""

    probabilities: list[np.ndarray] = field(default_factory=list)  # each (num_choices,)
    draws: list[float | None] = field(default_factory=list)  # None where nothing is drawn
    chosen: list[int] = field(default_factory=list)

    @property
    def margin(self) -> float:
        """How much likelier the best choice is than the second best, where they are nearest."""
        best = [np.sort(each)[-2:] for each in self.probabilities]
        return min(float(first / second) for second, first in best) - 1.0


@contextmanager
def record_choices() -> Iterator[list[Choices]]:
    """Keep the choices of every text that is begun in the block, in the order of the requests."""
    found: dict[Chooser, Choices] = {}
    in_order: list[Choices] = []
    begin, choose = Chooser.__init__, Chooser.choose

    def begin_recorded(self: Chooser, decoding: Decoding, prefix: str) -> None:
        begin(self, decoding, prefix)
        found[self] = Choices()
        in_order.append(found[self])

    def choose_recorded(self: Chooser, distribution: NextChoice) -> int:
        is_drawn = self._decoding.method != "greedy"
        chosen = choose(self, distribution)
        draw = self._draw if is_drawn else None
        weights = distribution.weights.double().cpu().numpy()
        own = found[self]
        own.probabilities.append(weights / weights.sum())
        own.draws.append(draw)
        own.chosen.append(chosen)
        return chosen

    with (
        patch.object(Chooser, "__init__", begin_recorded),
        patch.object(Chooser, "choose", choose_recorded),
    ):
        yield in_order


def assert_same_choices(
    found: Sequence[Choices], wanted: Sequence[Choices], *, atol: float = 1e-4
) -> list[int]:
    """Hold texts against others that must be the same but for rounding.

    Numbers of the texts that are the same to their end come out.
    """
    assert len(found) == len(wanted) > 0
    same = []
    num_compared = 0
    for number, (own, other) in enumerate(zip(found, wanted, strict=True)):
        for step in range(min(len(own.chosen), len(other.chosen))):
            np.testing.assert_allclose(
                own.probabilities[step],
                other.probabilities[step],
                rtol=1e-3,
                atol=atol,
                err_msg=f"text {number}, choice {step}",
            )
            assert own.draws[step] == other.draws[step]
            num_compared += 1
            if own.chosen[step] != other.chosen[step]:
                break
        else:
            assert len(own.chosen) == len(other.chosen) > 0
            same.append(number)
    assert num_compared >= MIN_COMPARED * sum(len(other.chosen) for other in wanted)
    return same
