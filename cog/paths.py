"""Every on-disk name of a project: a root folder goes in, the paths below it come out."""

import fnmatch
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from cog.errors import AssetError, ProjectError

PARAMS_FILE = "params.yaml"
REGISTRY_FOLDER = "registry"
CARDS_FOLDER = "cards"
MODELS_FOLDER = "models"
WORKFLOWS_FOLDER = "workflows"
BUILD, VERSIONS = "build", "versions"  # who holds a lock: who builds; who places, or removes
PACKAGE_DATA = "_data"  # in the package where it is installed: what it ships beside code


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


class _Below:
    """A path below the root of the record that it is an attribute of."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def __get__(self, paths: "CorpusPaths | ProjectPaths", _: type) -> Path:
        return paths.root.joinpath(*self._names)


@dataclass(frozen=True, slots=True)
class CorpusPaths:
    """The files of one built corpus."""

    root: Path  # corpora/<corpus-id>
    project: Path | None = None  # folder of the project it belongs to; None where there is none

    raw = _Below("raw")  # bytes as received, one file per source file
    documents = _Below("documents.parquet")  # as prepared; the report is in its metadata
    prompts = _Below("prompts.parquet")  # held out, with their references
    index = _Below("index")  # versions, each a LanceDB database in a folder named by its digest
    manifest = _Below("manifest.json")  # replacing it puts a new index version in place
    versions = _Below("versions")  # replaced, but still switched on, or may be again
    recorded = _Below("versions.jsonl")  # those in DVC's cache that dvc.lock no longer names
    generations = _Below("generations.jsonl")  # of the held-out prompts, one JSON object a line
    evaluation = _Below("evaluation.json")  # the pipeline's: scores, protocol and texts
    metrics = _Below("metrics.json")  # its scores by name, as `dvc metrics` reads them
    scores = _Below("scores.json")  # they as rows, with intervals, as `dvc plots` reads them
    evaluations = _Below("evaluations")  # all, and the texts they rest on; safe to delete
    tuning = _Below("tuning.json")  # decoding settings that were chosen for the index
    datastore = _Below("datastore")  # of kNN-LM: hidden states and next tokens
    segments = _Below("segments.json")  # how much of the documents other documents hold too
    model = _Below("model")  # trained on the documents
    retro = _Below("retro")  # an adapter of RETRO that was fitted on the documents

    def get_baseline_tuning(self, system: str) -> Path:
        """Settings of a baseline that were chosen for the corpus."""
        return self.root / f"tuning-{system}.json"

    @property
    def home(self) -> "ProjectPaths":
        """The project that it belongs to, or lies as if it did."""
        return ProjectPaths(self.project or self.root.parents[1])

    def version(self, name: str) -> "CorpusPaths":
        """A version that was replaced; it lies as the corpus does."""
        return CorpusPaths(self.versions / name / self.root.name, self.home.root)

    def lock(self, holder: str) -> Path:
        """A lock of the corpus: ``BUILD``, ``VERSIONS``, or of a version folder, by its name."""
        return self.home.locks / f"{self.root.name}-{holder}.lock"


@dataclass(frozen=True, slots=True)
class ProjectPaths:
    """The files of a project."""

    root: Path  # holds params.yaml and registry/

    params = _Below(PARAMS_FILE)
    cards = _Below(REGISTRY_FOLDER, CARDS_FOLDER)
    pipeline_file = _Below(REGISTRY_FOLDER, "pipeline.yaml")  # what DVC builds; by machine
    active = _Below(REGISTRY_FOLDER, "active.yaml")  # what is switched on, and what was before
    fetched = _Below(REGISTRY_FOLDER, "fetched.yaml")  # checksums of files from the web
    history = _Below(REGISTRY_FOLDER, "history.jsonl")  # of switches; lines are only ever added
    corpora = _Below("corpora")
    models = _Below(MODELS_FOLDER)
    pipeline = _Below("dvc.yaml")  # the stages that DVC runs
    dvc_lock = _Below("dvc.lock")  # what they read and wrote, by checksum
    workflows = _Below(WORKFLOWS_FOLDER)  # pipelines beside the main one, each in its folder
    studies = _Below("studies")  # blind ones: sheets, keys and answers
    locks = _Below(".cog", "locks")  # never versioned; safe to delete when nothing runs
    pipeline_lock = _Below(".cog", "locks", "pipeline.lock")  # of who writes `pipeline_file`
    runs_database = _Below("mlflow.db")
    run_artifacts = _Below("mlartifacts")

    def iter_dvc_locks(self) -> Iterator[Path]:
        """Find the locks of all pipelines, that of the main one first."""
        for path in (self.dvc_lock, *sorted(self.workflows.glob("*/dvc.lock"))):
            if path.is_file():
                yield path

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


def get_shipped(*names: str) -> Path:
    """Find what the package ships beside code: cards, models, templates."""
    package = Path(__file__).parent
    installed = package / PACKAGE_DATA
    return (installed if installed.is_dir() else package.parent).joinpath(*names)


def find_project(start: Path) -> ProjectPaths:
    """Find the project a folder belongs to: one that holds params.yaml and registry/."""
    for folder in (start.resolve(), *start.resolve().parents):
        if (folder / PARAMS_FILE).is_file() and (folder / REGISTRY_FOLDER).is_dir():
            return ProjectPaths(folder)
    raise ProjectError(
        f"a cog project needs {PARAMS_FILE} and {REGISTRY_FOLDER}/",
        found=f"neither in {start} nor above it",
        run="cd to the project, or pass --project DIR, or make one: cog init",
    )


def settle_torch() -> None:
    """Say how torch shall wait and where it may write, unless that is said; before it is imported.

    Threads that spin while they wait make it several times slower on a machine that is shared,
    those that sleep at once a third slower on a quiet one: they spin for a moment. And it makes a
    folder when it is imported, where nothing is written outside of project and cache.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
        # about as long as what lies between two products
        os.environ.setdefault("GOMP_SPINCOUNT", "3000")
    with suppress(AssetError):  # no cache: whoever needs it says so
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(get_cache_folder() / "torch"))


def get_cache_folder() -> Path:
    """Where fetched and converted files are kept between projects: ``COG_CACHE``, if set."""
    configured = os.environ.get("COG_CACHE")
    try:
        return Path(configured) if configured else Path.home() / ".cache" / "cog"
    except RuntimeError:  # no HOME, and no entry for the user
        raise AssetError(
            "COG_CACHE must name a folder for what is fetched",
            found="it is not set, and there is no home folder",
            run="export COG_CACHE=DIR",
        ) from None
