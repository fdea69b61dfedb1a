"""registry/pipeline.yaml, written by machine: what the pipeline builds, and with which versions.

Paths and corpus ids go in; entries are added, found or removed. Callers keep others from writing.
"""

import json
from dataclasses import asdict, dataclass, field, replace

from cog.atomic import write_text_atomically
from cog.cards import Card, check_corpus_id
from cog.errors import ProjectError
from cog.paths import ProjectPaths, get_shipped
from cog.reading import Count, read_record
from cog.yaml_file import open_yaml

UNWATCHED = ".dvcignore"  # there in every project, and never changed
LAYOUT = 1  # of the files of a project; a higher one is of a later cog
UPGRADE = "cog upgrade"

# The version of what each stage writes. It goes up when a stage writes something else for the same
# input, so that stages depend on what is written and not on the source files that write it.
VERSIONS = {
    "fetch": 1,
    "prepare": 1,
    "index": 1,
    "generate": 1,
    "evaluate": 2,
    "datastore": 1,
    "retro": 2,
    "segment": 2,
    "train": 1,
}
HEADER = """\
# What the pipeline builds, and the versions of what its stages write. Not to be edited: `cog corpus
# add` and `cog corpus remove` write the corpora, `cog init` and `cog upgrade` everything else.
"""


@dataclass(frozen=True, slots=True)
class CorpusEntry:
    """One corpus that the pipeline builds."""

    root: str  # id of the card that names the source: the corpus itself or the one it extends
    # what `dvc repro` watches: the local files; `UNWATCHED` of a pinned source
    source: str = UNWATCHED


@dataclass(frozen=True, slots=True)
class PipelineFile:
    """The whole file."""

    layout: Count = LAYOUT  # version of the layout of the project's files
    # the model that `dvc repro` watches for changes: its folder; `UNWATCHED` for a model of the
    # installed package, which is known by its name
    watched: str = UNWATCHED
    # what the pipeline builds, by corpus id
    corpora: dict[str, CorpusEntry] = field(default_factory=dict)
    # versions of what the stages write, by stage
    versions: dict[str, int] = field(default_factory=lambda: dict(VERSIONS))
    # digests of the files that `cog init` or `cog upgrade` wrote, as written
    files: dict[str, str] = field(default_factory=dict)


def load_pipeline(paths: ProjectPaths) -> PipelineFile:
    """Read the file; it is refused if it is of a later cog, or not as it is written here."""
    name = paths.pipeline_file.relative_to(paths.root).as_posix()
    run = f"git checkout HEAD {name}, or rm {name} and {UPGRADE}"
    try:
        file = open_yaml(paths.pipeline_file, name=name, error=ProjectError, run=run)
    except FileNotFoundError:
        raise ProjectError(
            f"a cog project needs {name}", found="none: the project is of an older cog", run=UPGRADE
        ) from None
    layout = file.content.get("layout") if isinstance(file.content, dict) else None
    _check_not_later("layout", layout, LAYOUT)  # before its keys are, which may be others
    content = read_record(
        PipelineFile, file.content, error=ProjectError, file=name, find_line=file.find_line, run=run
    )
    for stage, version in content.versions.items():
        _check_not_later(f"version of what {stage} writes", version, VERSIONS.get(stage, version))
    return content


def _check_not_later(name: str, version: object, known: int) -> None:
    if isinstance(version, int) and version > known:
        raise ProjectError(
            f"the project's {name} must be {known} or an earlier one",
            found=f"{version}: a later cog made it",
            run="pip install --upgrade copy-generator",
        )


def save_pipeline(paths: ProjectPaths, content: PipelineFile) -> None:
    """Write the file, atomically."""
    # JSON's quotes: YAML 1.1 and DVC's 1.2 differ in which plain words are numbers or truth values
    lines = [f"layout: {content.layout}", f"watched: {json.dumps(content.watched)}"]
    corpora = {name: asdict(entry) for name, entry in content.corpora.items()}
    for section, entries in (("corpora", corpora), ("files", content.files)):
        lines += [f"{section}:" if entries else f"{section}: {{}}"]
        for name, value in entries.items():
            lines.append(f"  {json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}")
    lines += ["versions:", *(f"  {name}: {value}" for name, value in content.versions.items())]
    write_text_atomically(paths.pipeline_file, HEADER + "\n".join(lines) + "\n")


def add_corpus_entry(paths: ProjectPaths, corpus_id: str, entry: CorpusEntry) -> None:
    """Let the pipeline build a corpus."""
    content = load_pipeline(paths)
    added = {check_corpus_id(corpus_id): entry}
    save_pipeline(paths, replace(content, corpora=content.corpora | added))


def remove_corpus_entry(paths: ProjectPaths, corpus_id: str) -> None:
    """Let the pipeline build a corpus no longer, if it does."""
    content = load_pipeline(paths)
    left = {name: entry for name, entry in content.corpora.items() if name != corpus_id}
    if left != content.corpora:
        save_pipeline(paths, replace(content, corpora=left))


def find_watched(paths: ProjectPaths, model: str) -> str:
    """Find the model's folder to watch, relative if it is here; ``UNWATCHED`` if the package's."""
    folder = paths.model(model)
    if folder.is_relative_to(paths.root):
        return folder.relative_to(paths.root).as_posix()
    return UNWATCHED if folder.is_relative_to(get_shipped()) else str(folder)


def make_entry(card: Card) -> CorpusEntry:
    """Make the entry of a corpus from its card, with everything filled in."""
    assert card.source is not None
    return CorpusEntry(card.root, card.source.path or UNWATCHED)
