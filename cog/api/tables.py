"""Tables for notebooks: rows go in, a data frame comes out where pandas is there."""

import warnings
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pandas import DataFrame

    from cog.evaluation.compare import Comparison
    from cog.evaluation.records import EvaluationResult

Rows = list[dict[str, Any]]


def list_scores(result: "EvaluationResult", *, run_id: str | None) -> Rows:
    """The scores of an evaluation, one a row, each with what it is of and its run in MLflow."""
    about = {
        "corpus": result.corpus,
        "prompts": result.prompt_corpus,
        "system": str(result.system),
        "protocol": result.protocol.digest,
        "run": run_id,
    }
    from cog.evaluation.records import SHOWN

    return [
        {"metric": each.name, **{name: getattr(each, name) for name in SHOWN}, **about}
        for each in result.scores
    ]


def list_pairs(comparison: "Comparison") -> Rows:
    """The differences of a comparison, one a row; None where chance cannot be told."""
    from cog.evaluation.statistics import Difference

    rows = []
    for pair in comparison.pairs:
        row = asdict(pair)
        difference = row.pop("difference")
        rows.append(row | dict.fromkeys(Difference.__dataclass_fields__) | (difference or {}))
    return rows


def make_table(rows: Iterable[dict[str, Any]]) -> "DataFrame | Rows":
    """Put rows into a data frame; they stay a list, with a warning, where pandas is missing."""
    listed = list(rows)
    try:
        from pandas import DataFrame
    except ImportError:
        warnings.warn("pandas is not installed: rows come as a list of dicts", stacklevel=3)
        return listed
    return DataFrame(listed)
