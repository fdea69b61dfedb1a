"""Training from the command line or the pipeline.

Files or a corpus go in, compared with the evaluation's text; a trained model comes out. Whoever
follows the run is handed in.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from cog.atomic import discard
from cog.corpus.text_files import find_form, iter_text_documents, list_text_files
from cog.errors import CheckpointError, DamagedCheckpointError
from cog.hashing import digest_files
from cog.model.config import CONFIG_FILE
from cog.model.fingerprint import fingerprint_model
from cog.params import Params
from cog.paths import ProjectPaths
from cog.progress import Progress, SilentProgress, show_progress
from cog.records import Document
from cog.training.overlap import KEEP, REFUSE, screen_documents

if TYPE_CHECKING:
    from cog.training.building import TrainingText
    from cog.training.job import TrainJob, TrainReport
    from cog.training.reporting import LogMetrics
    from cog.training.schedule import Budget

Report = TypeVar("Report")
# name of a run, what it was started with and who is told of trouble go in; what takes the metrics
# of a step, or None, is held while it runs
Follow = Callable[[str, Mapping[str, str], Progress], "AbstractContextManager[LogMetrics | None]"]

MAX_WORKERS = 8
FORM = "form of the data"
NOT_READ = "files not read"
NUM_NAMED = 20  # files, in a model's card
RANK_VARIABLE = "RANK"  # set by torchrun and accelerate for each of several processes


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainRequest:
    """What a user asks for."""

    profile: str | None = None  # name of a profile; None for the default
    data: tuple[Path, ...] = ()  # text files, or folders of them; empty for a corpus
    corpus_id: str | None = None
    source: Path | None = None  # folder of a model to go on from; None for the base models
    objective: str = "copy"  # `copy`, or `tokens` for the token loss alone
    # number of steps; None for the profile's, or for no limit where there is one of seconds
    max_steps: int | None = None
    max_seconds: float | None = None  # seconds of training; None for no limit
    out: Path | None = None  # folder of the model; None for `models/<profile>`
    is_resumed: bool = False  # whether to go on from the last checkpoint in `out`
    evaluation: tuple[Path, ...] = ()  # files that must not be trained on
    on_overlap: str = REFUSE  # `refuse`, `drop` or `keep`
    seed: int = 0
    # number of processes that make batches, 0 for none; None to choose
    num_workers: int | None = None
    device: str = "auto"  # `cpu`, `cuda` or `auto`
    # licence of the text, for the model's card; None for the corpus's own, or if it is not known
    licence: str | None = None


def train_with_tracking(
    paths: ProjectPaths, params: Params, request: TrainRequest, *, follow: Follow
) -> "TrainReport | None":
    """Train a model and log how it goes; None in a process that is not the first of several."""
    from cog.training.job import train

    job = make_job(paths, params, request)
    if os.environ.get(RANK_VARIABLE, "0") != "0":
        train(job, progress=SilentProgress(), log=None)
        return None
    label = f"train {job.recipe.name}"
    with follow_run(label, job.out, job.budget, _list_params(job), follow) as (progress, log):
        for fact in ("data", FORM, NOT_READ):
            if fact in job.about:
                progress.say(f"{fact}: {job.about[fact]}")
        return train(job, progress=progress, log=log)


def train_on_corpus(
    paths: ProjectPaths, params: Params, corpus_id: str, *, follow: Follow
) -> "TrainReport | None":
    """Train the default profile on a corpus, into ``corpora/<id>/model``.

    A run that broke off goes on; a model that was finished, or is of something else, is replaced.
    """
    out = paths.corpus(corpus_id).model
    request = TrainRequest(corpus_id=corpus_id, out=out, is_resumed=True)
    job = make_job(paths, params, request)
    return go_on_or_begin_anew(
        job.out,
        config=CONFIG_FILE,
        max_steps=job.budget.max_steps or 0,
        run=lambda: train_with_tracking(paths, params, request, follow=follow),
    )


@contextmanager
def follow_run(
    label: str, out: Path, budget: "Budget", described: Mapping[str, str], follow: Follow
) -> "Iterator[tuple[Progress, LogMetrics | None]]":
    """Show how much of a budget is used, and let the run be followed."""
    is_by_steps = budget.max_steps is not None
    total = budget.max_steps if is_by_steps else int(budget.max_seconds or 0)
    unit = "steps" if is_by_steps else "seconds"
    limits = {"max_steps": str(budget.max_steps), "max_seconds": str(budget.max_seconds)}
    with (
        show_progress(label, total=total, unit=unit) as progress,
        follow(out.name, {**described, **limits}, progress) as log,
    ):
        yield progress, log


def go_on_or_begin_anew(
    folder: Path, *, config: str, max_steps: int, run: Callable[[], Report]
) -> Report:
    """Go on with a run that broke off; replace what was finished, or is of something else.

    A finished folder holds the file ``config``, and its run took ``max_steps``. What ``run`` trains
    goes on from the last checkpoint if there is one.
    """
    from cog.training.checkpoint import find_checkpoints, get_step
    from cog.training.run_folder import CHECKPOINTS

    checkpoints = find_checkpoints(folder / CHECKPOINTS)
    # a run that was killed after its last step has all of it in a checkpoint, and wrote no model
    is_finished = not checkpoints or get_step(checkpoints[-1]) >= max_steps
    if (folder / config).exists() and is_finished:
        discard(folder)
    try:
        return run()
    except DamagedCheckpointError:
        raise
    except CheckpointError as error:
        if not Path(error.about).name.startswith("step-"):
            raise
        discard(folder)
        return run()


def make_job(paths: ProjectPaths, params: Params, request: TrainRequest) -> "TrainJob":
    """Fill in what a user does not say; nothing is read yet but the files' bytes."""
    from cog.training.initial_model import load_recipe
    from cog.training.job import TrainJob
    from cog.training.schedule import Budget

    recipe = load_recipe(params.train, request.profile)
    max_steps = request.max_steps
    if max_steps is None and request.max_seconds is None:
        max_steps = recipe.loop.max_steps
    num_workers = request.num_workers
    if num_workers is None:
        num_workers = min(MAX_WORKERS, max(1, (os.cpu_count() or 1) - 1))
    text, about = _choose_text(paths, request)
    if request.source is not None:
        _check_source(request.source)
        name, fingerprint = request.source.resolve().name, fingerprint_model(request.source)
        about["goes on from"] = f"{name}, fingerprint {fingerprint}"
    out = request.out or paths.root / "models" / recipe.name
    given = {each.name: getattr(request, each.name) for each in fields(request)}
    return TrainJob(
        **given | {"out": out, "num_workers": num_workers},
        recipe=recipe,
        text=text,
        budget=Budget(max_steps, request.max_seconds),
        about=about,
    )


def _check_source(source: Path) -> None:
    if not (source / CONFIG_FILE).is_file():
        raise CheckpointError(
            f"{source} must hold {CONFIG_FILE}",
            found="no such file" if source.is_dir() else "no such folder",
            run="give --from a model folder, such as models/cog-v0",
        )


def _choose_text(
    paths: ProjectPaths, request: TrainRequest
) -> "tuple[TrainingText, dict[str, str]]":
    from cog.training.building import TrainingText

    evaluation, notes = list_text_files(request.evaluation)
    compared = (
        f"{request.on_overlap}:{digest_files(evaluation, num_bytes=16)}" if evaluation else "none"
    )
    names = _name_files(evaluation)
    read: Callable[[], Iterable[Document]]
    about = {"compared with": f"{names}, on overlap {request.on_overlap}" if evaluation else "none"}
    if request.corpus_id is None:
        files, more_notes = list_text_files(request.data)
        notes += more_notes
        digest = digest_files(files, num_bytes=16)
        forms = [find_form(path).meaning for path in files]
        # the same bytes may be read in another way by a later version
        identity = f"files:{digest} {forms}"
        about["data"] = _name_files(files)
        about[FORM] = "; ".join(dict.fromkeys(forms))
        licence = "not stated"
        read = partial(iter_text_documents, files)
    else:
        from cog.corpus.documents import DocumentStore, documents_digest
        from cog.registry import load_resolved_card

        card = load_resolved_card(paths, request.corpus_id)
        store = DocumentStore(paths.corpus(card.id).documents)
        digest = documents_digest(store.path)
        identity = f"corpus:{digest}"
        about["data"] = f"corpus {request.corpus_id}"
        known = (card.licence.id, card.licence.url, card.licence.attribution)
        licence = ", ".join(part for part in known if part)
        read = store.iter_documents
    about["licence of the data"] = request.licence or licence
    if notes:
        about[NOT_READ] = "; ".join(notes)
    about["digest of the data"] = digest

    def screen() -> Iterable[Document]:
        if not evaluation or request.on_overlap == KEEP:
            return read()
        compared_with = iter_text_documents(evaluation)
        return screen_documents(read(), compared_with, action=request.on_overlap)

    return TrainingText(screen, f"{identity} {compared}"), about


def _name_files(files: Sequence[Path]) -> str:
    names, rest = [path.name for path in files[:NUM_NAMED]], len(files) - NUM_NAMED
    return ", ".join(names) + (f" and {rest} more" if rest > 0 else "")


def _list_params(job: "TrainJob") -> dict[str, str]:
    described = {
        **job.about,
        "profile": job.recipe.name,
        "objective": job.objective,
        "seed": str(job.seed),
        "from": str(job.source),
    }
    return {name.replace(" ", "_"): value for name, value in described.items()}
