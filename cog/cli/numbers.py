"""Values on the command line: text goes in, a value that a record allows comes out."""

import math
from typing import Any

import click

from cog.reading import OneOf, Range, get_rule


class FiniteRange(click.FloatRange):
    """A range of numbers without infinity and without what is no number."""

    def convert(
        self,
        value: Any,  # noqa: ANN401
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> float:
        """Read a number; what is out of range, or not finite, is wrong usage."""
        found = float(super().convert(value, param, ctx))
        if not math.isfinite(found):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return found


def make_type(record: type[Any], name: str) -> click.ParamType[Any]:
    """What an option takes that sets a number or a choice of a record, as the record says."""
    rule = get_rule(record, name)
    if isinstance(rule, OneOf):
        return click.Choice(rule.choices)
    ends = rule if isinstance(rule, Range) else Range()
    low, high = max(ends.at_least, ends.above), min(ends.at_most, ends.below)
    is_whole = isinstance(record.__dataclass_fields__[name].default, int)
    kind: Any = click.IntRange if is_whole else FiniteRange
    made: click.ParamType[Any] = kind(
        low if math.isfinite(low) else None,
        high if math.isfinite(high) else None,
        min_open=math.isfinite(ends.above),
        max_open=math.isfinite(ends.below),
    )
    return made
