"""What studies of evaluations share: options go in, a plan of evaluations comes out."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cog.cli.evaluate import MeasureOptions, make_wanted
from cog.cli.numbers import make_type
from cog.cli.options import option
from cog.records import Decoding

if TYPE_CHECKING:
    from cog.evaluation.session import Plan
    from cog.params import Params


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyOptions(MeasureOptions):
    """What the command line gives of the evaluations of a study."""

    decoding: str | None = option(
        "--decoding", type=make_type(Decoding, "method"), help="How a choice is taken."
    )
    as_json: bool = option("--json", is_flag=True, help="Print one JSON object.")


def make_plan(
    params: "Params", given: StudyOptions, corpus_id: str, prompt_corpus_id: str, /
) -> "Plan":
    """Make a plan of what the command line gives and of params.yaml."""
    from cog.evaluation.planning import make_plan as make

    settings = {} if given.decoding is None else {"decoding": given.decoding}
    wanted = make_wanted(
        given, corpus_id=corpus_id, prompt_corpus_id=prompt_corpus_id, settings=settings
    )
    return make(params, wanted)
