"""Every on-disk name of a project: a root folder goes in, the paths below it come out."""

import fnmatch
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from cog.errors import ProjectError

PARAMS_FILE = "params.yaml"
REGISTRY_FOLDER = "registry"
CARDS_FOLDER = "cards"
MODELS_FOLDER = "models"


def is_below(name: str) -> bool:
    """Tell whether a name that somebody else wrote stays below the folder it is joined to."""
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts


def is_member(name: str, patterns: Iterable[str]) -> bool:
    """Tell whether one of a card's ``source.members`` names a file of a folder or an archive.

    ``*``, ``?`` and ``[…]`` match within one folder, ``**`` any number of folders; a pattern
    without a slash names files in every folder.
    """
    return any(
        _fits(name.split("/"), (each if "/" in each else f"**/{each}").split("/"))
        for each in patterns
    )


def _fits(names: list[str], patterns: list[str]) -> bool:
    if not patterns:
        return not names
    if patterns[0] == "**":
        return any(_fits(names[start:], patterns[1:]) for start in range(len(names)))
    is_first = bool(names) and fnmatch.fnmatchcase(names[0], patterns[0])
    return is_first and _fits(names[1:], patterns[1:])


@dataclass(frozen=True, slots=True)
class CorpusPaths:
    """The files of one built corpus.

    :param root: ``corpora/<corpus-id>``.
    :param project: The folder of the project it belongs to; None where there is none.
    """

    root: Path
    project: Path | None = None

    @property
    def raw(self) -> Path:
        """Bytes as received, one file per source file."""
        return self.root / "raw"

    @property
    def documents(self) -> Path:
        """Normalised, filtered, de-duplicated documents; the report is in the schema metadata."""
        return self.root / "documents.parquet"

    @property
    def prompts(self) -> Path:
        """Held-out prompts with their references."""
        return self.root / "prompts.parquet"

    @property
    def index(self) -> Path:
        """Folder of index versions, each a LanceDB database in a folder named by its digest."""
        return self.root / "index"

    @property
    def versions(self) -> Path:
        """Folder of versions that were replaced but are still switched on, or may be again."""
        return self.root / "versions"

    @property
    def recorded(self) -> Path:
        """Versions that DVC's cache holds and dvc.lock no longer names, one JSON object a line."""
        return self.root / "versions.jsonl"

    @property
    def manifest(self) -> Path:
        """The manifest; replacing it is what puts a new index version in place."""
        return self.root / "manifest.json"

    @property
    def datastore(self) -> Path:
        """The datastore of kNN-LM: hidden states and next tokens."""
        return self.root / "datastore"

    @property
    def segments(self) -> Path:
        """How much of the documents other documents hold too; what ``cog segment`` writes."""
        return self.root / "segments.json"

    @property
    def tuning(self) -> Path:
        """Decoding settings that were chosen for the index."""
        return self.root / "tuning.json"

    def get_baseline_tuning(self, system: str) -> Path:
        """Settings of a baseline that were chosen for the corpus."""
        return self.root / f"tuning-{system}.json"

    @property
    def generations(self) -> Path:
        """Generations of the held-out prompts, one JSON object a line."""
        return self.root / "generations.jsonl"

    @property
    def evaluation(self) -> Path:
        """The evaluation that the pipeline made: scores, protocol and texts."""
        return self.root / "evaluation.json"

    @property
    def metrics(self) -> Path:
        """The scores of that evaluation by name, as ``dvc metrics`` reads them."""
        return self.root / "metrics.json"

    @property
    def scores(self) -> Path:
        """They as rows, with their intervals, as ``dvc plots`` reads them."""
        return self.root / "scores.json"

    @property
    def model(self) -> Path:
        """A model trained on the documents."""
        return self.root / "model"

    @property
    def retro(self) -> Path:
        """An adapter of RETRO that was fitted on the documents."""
        return self.root / "retro"

    @property
    def evaluations(self) -> Path:
        """Folder of all evaluations, and of the texts they rest on; safe to delete."""
        return self.root / "evaluations"

    def version(self, name: str) -> "CorpusPaths":
        """A version that was replaced; it lies as the corpus does."""
        return CorpusPaths(self.versions / name / self.root.name, self.project)


@dataclass(frozen=True, slots=True)
class ProjectPaths:
    """The files of a project.

    :param root: The folder that holds ``params.yaml`` and ``registry/``.
    """

    root: Path

    @property
    def params(self) -> Path:
        """The pipeline's parameters."""
        return self.root / PARAMS_FILE

    @property
    def cards(self) -> Path:
        """Folder of corpus cards."""
        return self.root / REGISTRY_FOLDER / CARDS_FOLDER

    @property
    def pipeline_file(self) -> Path:
        """What the pipeline builds, and with which versions; written by machine."""
        return self.root / REGISTRY_FOLDER / "pipeline.yaml"

    @property
    def active(self) -> Path:
        """What is switched on, and what was before."""
        return self.root / REGISTRY_FOLDER / "active.yaml"

    @property
    def fetched(self) -> Path:
        """Checksums of files from the web, as they were fetched first."""
        return self.root / REGISTRY_FOLDER / "fetched.yaml"

    @property
    def history(self) -> Path:
        """What was switched on when, by whom; lines are only ever added."""
        return self.root / REGISTRY_FOLDER / "history.jsonl"

    @property
    def corpora(self) -> Path:
        """Folder of built corpora."""
        return self.root / "corpora"

    @property
    def models(self) -> Path:
        """Folder of model folders."""
        return self.root / MODELS_FOLDER

    @property
    def pipeline(self) -> Path:
        """The stages that DVC runs."""
        return self.root / "dvc.yaml"

    @property
    def dvc_lock(self) -> Path:
        """What DVC's stages read and wrote, by checksum."""
        return self.root / "dvc.lock"

    @property
    def studies(self) -> Path:
        """Folder of blind studies: sheets, keys and answers."""
        return self.root / "studies"

    @property
    def workflows(self) -> Path:
        """Folder of the pipelines beside the main one, each in a folder of its own."""
        return self.root / "workflows"

    def iter_dvc_locks(self) -> Iterator[Path]:
        """Find the locks of all pipelines, that of the main one first."""
        for path in (self.dvc_lock, *sorted(self.workflows.glob("*/dvc.lock"))):
            if path.is_file():
                yield path

    @property
    def locks(self) -> Path:
        """Lock files; never versioned, safe to delete when nothing runs."""
        return self.root / ".cog" / "locks"

    @property
    def runs_database(self) -> Path:
        """MLflow's database."""
        return self.root / "mlflow.db"

    @property
    def run_artifacts(self) -> Path:
        """Folder of MLflow's artifacts."""
        return self.root / "mlartifacts"

    def card(self, corpus_id: str) -> Path:
        """``registry/cards/<corpus-id>.yaml``."""
        return self.cards / f"{corpus_id}.yaml"

    def shipped_card(self, corpus_id: str) -> Path:
        """A card that the package ships; in a checkout of the package, the project's own."""
        return get_shipped(REGISTRY_FOLDER, CARDS_FOLDER) / f"{corpus_id}.yaml"

    def model(self, name: str) -> Path:
        """A model's folder: one of the project, or in ``models/`` here or in the package.

        Gives the first that is there; where it would be in the project if none is.
        """
        shipped = get_shipped(MODELS_FOLDER)
        places = (self.root / name, self.models / name, shipped / name.removeprefix("models/"))
        return next((each for each in places if each.is_dir()), places[0])

    def corpus(self, corpus_id: str) -> CorpusPaths:
        """``corpora/<corpus-id>``."""
        return CorpusPaths(self.corpora / corpus_id, self.root)


def writer_lock(locks: Path, corpus_id: str) -> Path:
    """The lock of who builds the index of a corpus."""
    return locks / f"{corpus_id}-build.lock"


def versions_lock(locks: Path, corpus_id: str) -> Path:
    """The lock of who puts versions of a corpus in place, or removes them."""
    return locks / f"{corpus_id}-versions.lock"


def reader_lock(locks: Path, corpus_id: str, folder: str) -> Path:
    """The lock that readers of a version folder share."""
    return locks / f"{corpus_id}-{folder}.lock"


def get_shipped(*names: str) -> Path:
    """Find what the package ships beside code: cards, models, templates."""
    package = Path(__file__).parent
    installed = package / "_data"
    return (installed if installed.is_dir() else package.parent).joinpath(*names)


def find_project(start: Path) -> ProjectPaths:
    """Find the project a folder belongs to: one that holds params.yaml and registry/."""
    for folder in (start.resolve(), *start.resolve().parents):
        if (folder / PARAMS_FILE).is_file() and (folder / REGISTRY_FOLDER).is_dir():
            return ProjectPaths(folder)
    raise ProjectError(
        f"a cog project needs {PARAMS_FILE} and {REGISTRY_FOLDER}/",
        found=f"neither in {start} nor above it",
        run="cd to the project, or pass --project DIR",
        about=str(start),
    )


def get_cache_folder() -> Path:
    """Where fetched and converted files are kept between projects: ``COG_CACHE``, if set."""
    configured = os.environ.get("COG_CACHE")
    return Path(configured) if configured else Path.home() / ".cache" / "cog"
