"""Training from the command line or the pipeline.

Files or a corpus go in, compared with the evaluation's text; a trained model comes out. Whoever
follows the run is handed in.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from cog.atomic import discard
from cog.corpus.text_files import (
    digest_text_files,
    find_form,
    iter_text_documents,
    list_text_files,
)
from cog.errors import CheckpointError, DamagedCheckpointError
from cog.model.config import CONFIG_FILE
from cog.model.fingerprint import fingerprint_model
from cog.params import Params
from cog.paths import ProjectPaths
from cog.progress import Progress, SilentProgress, show_progress
from cog.records import Document
from cog.training.overlap import OverlapScreen

if TYPE_CHECKING:
    from cog.cards import Licence
    from cog.training.building import TrainingText
    from cog.training.job import TrainJob, TrainReport
    from cog.training.reporting import LogMetrics

Report = TypeVar("Report")
# name of a run, what it was started with and who is told of trouble go in; what takes the metrics
# of a step, or None, is held while it runs
Follow = Callable[[str, Mapping[str, str], Progress], "AbstractContextManager[LogMetrics | None]"]

MAX_WORKERS = 8
FORM = "form of the data"
NOT_READ = "files not read"
NUM_NAMED = 20  # files, in a model's card
RANK_VARIABLE = "RANK"  # set by torchrun and accelerate for each of several processes


@dataclass(frozen=True, slots=True)
class TrainRequest:
    """What a user asks for.

    :param profile: Name of the profile.
    :param data: Text files, or folders of them; empty for a corpus.
    :param corpus_id: The corpus; None for files.
    :param source: Folder of a model to go on from; None for the base models.
    :param objective: ``copy`` or ``tokens``.
    :param max_steps: Number of steps; None for the profile's, or for no limit where there is one of
        seconds.
    :param max_seconds: Seconds of training; None for no limit.
    :param out: Folder of the model; None for ``models/<profile>``.
    :param is_resumed: Whether to go on from the last checkpoint.
    :param evaluation: Files that must not be trained on.
    :param on_overlap: ``refuse``, ``drop`` or ``keep``.
    :param seed: Seed of everything random.
    :param num_workers: Number of processes that make batches; None to choose.
    :param device: ``cpu``, ``cuda`` or ``auto``.
    :param licence: Licence of the text files, for the model's card; None for the corpus's own, or
        if it is not known.
    """

    profile: str
    data: tuple[Path, ...]
    corpus_id: str | None
    source: Path | None
    objective: str
    max_steps: int | None
    max_seconds: float | None
    out: Path | None
    is_resumed: bool
    evaluation: tuple[Path, ...]
    on_overlap: str
    seed: int
    num_workers: int | None
    device: str
    licence: str | None = None


def train_with_tracking(
    paths: ProjectPaths, params: Params, request: TrainRequest, *, follow: Follow
) -> "TrainReport | None":
    """Train a model and log how it goes.

    :param paths: The project.
    :param params: params.yaml.
    :param request: What to do.
    :param follow: Follows the run.
    :returns: What was done; None in a process that is not the first of several.
    """
    from cog.training.job import train

    job = make_job(paths, params, request)
    if os.environ.get(RANK_VARIABLE, "0") != "0":
        train(job, progress=SilentProgress(), log=None)
        return None
    budget = job.budget
    is_by_steps = budget.max_steps is not None
    total = budget.max_steps if is_by_steps else int(budget.max_seconds or 0)
    unit = "steps" if is_by_steps else "seconds"
    with (
        show_progress(f"train {job.recipe.name}", total=total, unit=unit) as progress,
        follow(job.out.name, _list_params(job), progress) as log,
    ):
        for fact in ("data", FORM, NOT_READ):
            if fact in job.about:
                progress.say(f"{fact}: {job.about[fact]}")
        return train(job, progress=progress, log=log)


def train_on_corpus(
    paths: ProjectPaths, params: Params, corpus_id: str, *, follow: Follow
) -> "TrainReport | None":
    """Train the default profile on a corpus.

    A run that broke off goes on; a model that was finished, or is of something else, is replaced.

    :param paths: The project.
    :param params: params.yaml.
    :param corpus_id: The corpus.
    :param follow: Follows the run.
    :returns: What was done; the model lies in ``corpora/<id>/model``.
    """
    request = TrainRequest(
        profile=params.train.profile,
        data=(),
        corpus_id=corpus_id,
        source=None,
        objective="copy",
        max_steps=None,
        max_seconds=None,
        out=paths.corpus(corpus_id).model,
        is_resumed=True,
        evaluation=(),
        on_overlap="refuse",
        seed=0,
        num_workers=None,
        device="auto",
    )
    job = make_job(paths, params, request)
    return go_on_or_begin_anew(
        job.out,
        config=CONFIG_FILE,
        max_steps=job.budget.max_steps or 0,
        run=lambda: train_with_tracking(paths, params, request, follow=follow),
    )


def go_on_or_begin_anew(
    folder: Path, *, config: str, max_steps: int, run: Callable[[], Report]
) -> Report:
    """Go on with a run that broke off; replace what was finished, or is of something else.

    :param folder: Folder of what is trained.
    :param config: Name of the file that a finished folder holds.
    :param max_steps: Number of steps of a finished run.
    :param run: Trains, going on from the last checkpoint if there is one.
    :returns: What ``run`` returns.
    """
    from cog.training.checkpoint import find_checkpoints, get_step
    from cog.training.run_folder import RUN_FOLDER

    found = find_checkpoints(folder / RUN_FOLDER / "checkpoints")
    # a run that was killed after its last step has all of it in a checkpoint, and wrote no model
    if (folder / config).exists() and (not found or get_step(found[-1]) >= max_steps):
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
    """Fill in what a user does not say.

    :param paths: The project.
    :param params: params.yaml.
    :param request: What the user asks for.
    :returns: The whole job; nothing was read yet but params.yaml and the files' bytes.
    """
    from cog.training.job import TrainJob
    from cog.training.recipe import load_recipe
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
    return TrainJob(
        recipe=recipe,
        text=text,
        source=request.source,
        objective=request.objective,
        budget=Budget(max_steps, request.max_seconds),
        out=request.out or paths.root / "models" / recipe.name,
        is_resumed=request.is_resumed,
        device=request.device,
        num_workers=num_workers,
        seed=request.seed,
        about=about,
    )


def _check_source(source: Path) -> None:
    if not (source / CONFIG_FILE).is_file():
        raise CheckpointError(
            f"{source} must hold {CONFIG_FILE}",
            found="no such file" if source.is_dir() else "no such folder",
            run="give --from a model folder, such as models/cog-v0",
            about=str(source),
        )


def _choose_text(
    paths: ProjectPaths, request: TrainRequest
) -> "tuple[TrainingText, dict[str, str]]":
    from cog.training.building import TrainingText

    evaluation, notes = list_text_files(request.evaluation)
    compared = f"{request.on_overlap}:{digest_text_files(evaluation)}" if evaluation else "none"
    names = _name_files(evaluation)
    about = {"compared with": f"{names}, on overlap {request.on_overlap}" if evaluation else "none"}
    if request.corpus_id is None:
        files, more_notes = list_text_files(request.data)
        notes += more_notes
        identity = f"files:{digest_text_files(files)}"
        about["data"] = _name_files(files)
        forms = [find_form(path).meaning for path in files]
        about[FORM] = "; ".join(dict.fromkeys(forms))
        identity += f" {forms}"  # the same bytes may be read in another way by a later version
        about["licence of the data"] = request.licence or "not stated"
    else:
        from cog.corpus.documents import documents_digest
        from cog.registry import load_resolved_card

        card = load_resolved_card(paths, request.corpus_id)
        corpus = paths.corpus(card.id)
        identity = f"corpus:{documents_digest(corpus.documents)}"
        about["data"] = f"corpus {request.corpus_id}"
        about["licence of the data"] = request.licence or _describe(card.licence)
    if notes:
        about[NOT_READ] = "; ".join(notes)
    about["digest of the data"] = identity.partition(":")[2].partition(" ")[0]

    def read() -> Iterable[Document]:
        if request.corpus_id is None:
            documents = iter_text_documents(files)
        else:
            from cog.corpus.documents import DocumentStore

            documents = DocumentStore(corpus.documents).iter_documents()
        if not evaluation:
            return documents
        screen = OverlapScreen(iter_text_documents(evaluation), action=request.on_overlap)
        return screen.screen(documents)

    return TrainingText(read, f"{identity} {compared}"), about


def _name_files(files: Sequence[Path]) -> str:
    names, rest = [path.name for path in files[:NUM_NAMED]], len(files) - NUM_NAMED
    return ", ".join(names) + (f" and {rest} more" if rest > 0 else "")


def _describe(licence: "Licence") -> str:
    known = (licence.id, licence.url, licence.attribution)
    return ", ".join(part for part in known if part)


def _list_params(job: "TrainJob") -> dict[str, str]:
    described = {
        **job.about,
        "profile": job.recipe.name,
        "objective": job.objective,
        "seed": str(job.seed),
        "max_steps": str(job.budget.max_steps),
        "max_seconds": str(job.budget.max_seconds),
        "from": str(job.source),
    }
    return {name.replace(" ", "_"): value for name, value in described.items()}
