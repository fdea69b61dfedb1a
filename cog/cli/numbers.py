"""Numbers on the command line: text goes in, a checked number comes out."""

import math
from typing import Any

import click


class FiniteRange(click.FloatRange):
    """A range of numbers without infinity and without what is no number."""

    def convert(
        self,
        value: Any,  # noqa: ANN401
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> float:
        """Read a number.

        :param value: What was given.
        :param param: The option.
        :param ctx: The command.
        :returns: The number; what is out of range, or not finite, is wrong usage.
        """
        found = float(super().convert(value, param, ctx))
        if not math.isfinite(found):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return found
