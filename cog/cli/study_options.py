"""What studies of evaluations share: options go in, a plan of evaluations comes out."""

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from cog.cli.evaluate import MeasureOptions
from cog.cli.options import make_type, option
from cog.cli.output import tell
from cog.records import Decoding

if TYPE_CHECKING:
    from cog.evaluation.session import Plan
    from cog.evaluation.studies import Kind, Study
    from cog.params import Params
    from cog.paths import ProjectPaths


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
    from cog.evaluation.planning import Wanted
    from cog.evaluation.planning import make_plan as make

    measure = {each.name: getattr(given, each.name) for each in fields(MeasureOptions)}
    settings = {} if given.decoding is None else {"decoding": given.decoding}
    return make(
        params,
        Wanted(
            corpus_id=corpus_id, prompt_corpus_id=prompt_corpus_id, settings=settings, **measure
        ),
    )


def run(paths: "ProjectPaths", params: "Params", kind: "Kind", *, experiment: str) -> "Study":
    """Run a study while its progress is shown."""
    from cog.evaluation.studies import run_study
    from cog.progress import show_progress

    with show_progress(experiment, total=None, unit="texts") as progress:
        return run_study(paths, params, kind, experiment=experiment, progress=progress)


def tell_notes(study: "Study") -> None:
    """Say what is to be known beside the numbers, and where they were logged."""
    for note in study.notes:
        tell(note)
    tell(f"logged to the experiment {study.experiment} (make ui)")
