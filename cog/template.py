"""A project's own files: a folder goes in; what is missing or of an older cog is written there.

The files are those of the package, one by one under the same names. One that a person edited is
never overwritten: what is new then lies beside it, in a file that ends in ``.new``.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cog.atomic import write_text_atomically
from cog.errors import CogError, ProjectError, advise_on_writing
from cog.git import run_git
from cog.locks import hold_lock
from cog.params import MOVED
from cog.paths import PARAMS_FILE, REGISTRY_FOLDER, WORKFLOWS_FOLDER, ProjectPaths, get_shipped
from cog.pipeline_file import (
    UPGRADE,
    VERSIONS,
    PipelineFile,
    find_watched,
    load_pipeline,
    make_entry,
    save_pipeline,
)
from cog.registry import load_card, load_resolved_card
from cog.yaml_file import YamlError, parse_yaml

FIRST_CORPORA = ("wiki-mini", "eu-law-mini")
OWN_FILES = (".gitignore", ".dvcignore", "corpora/.gitignore", "dvc.yaml", PARAMS_FILE)
DVC_FILES = (".dvc/.gitignore", ".dvc/config")
NO_GIT = "[core]\n    no_scm = true\n"
WORKFLOW_FILES = ("dvc.yaml", "README.md")
NEW = ".new"


@dataclass(frozen=True, slots=True)
class Plan:
    """What making or upgrading a project would write."""

    texts: dict[str, str]  # content by file, relative to the project
    pipeline: PipelineFile | None  # content of registry/pipeline.yaml; None if it stays as it is
    notes: tuple[str, ...]  # what a person is told, one line each

    @property
    def is_empty(self) -> bool:
        """Whether nothing would change."""
        return not self.texts and self.pipeline is None

    @property
    def has_new(self) -> bool:
        """Whether something new lies beside a file that a person wrote."""
        return any(name.endswith(NEW) for name in self.texts)

    def describe(self) -> list[str]:
        """Say what would change, one line each."""
        return [*self.texts, *self.notes]


def init_project(folder: Path, *, workflows: Sequence[str] = (), is_trial: bool = False) -> Plan:
    """Make a project of a folder, unless it is one; a trial only says what would be done."""
    paths = ProjectPaths(folder.resolve())
    _refuse_nested(paths)
    shipped = sorted(path.parent.name for path in get_shipped(WORKFLOWS_FOLDER).glob("*/dvc.yaml"))
    for name in workflows:
        if name not in shipped:
            wanted = f"a workflow must be one of {', '.join(shipped)}"
            raise ProjectError(wanted, found=name, run="cog init -h")
    names = [f"{WORKFLOWS_FOLDER}/{each}/{file}" for each in workflows for file in WORKFLOW_FILES]
    return _carry_out(paths, names, is_trial=is_trial)


def upgrade_project(paths: ProjectPaths, *, is_trial: bool = False) -> Plan:
    """Bring the files of a project to the installed cog; a trial only says what would be done."""
    return _carry_out(paths, is_trial=is_trial, is_upgrade=True)


def add_shipped(paths: ProjectPaths, corpus_id: str) -> bool:
    """Let the pipeline build a corpus whose card the package ships; whether anything changed."""
    with hold_lock(paths.pipeline_lock):
        before = load_pipeline(paths)
        missing = (
            each for each in _list_cards(paths, [corpus_id]) if not (paths.root / each).is_file()
        )
        texts, files, _ = _compare(paths, missing, before.files)
        entry = make_entry(load_resolved_card(paths, corpus_id))
        content = replace(before, files=files, corpora={**before.corpora, corpus_id: entry})
        for name, text in texts.items():
            write_text_atomically(paths.root / name, text)
        if content != before:
            save_pipeline(paths, content)
        return content != before


def _carry_out(
    paths: ProjectPaths, added: Sequence[str] = (), *, is_trial: bool, is_upgrade: bool = False
) -> Plan:
    if is_trial:
        return _plan(paths, added, is_upgrade=is_upgrade)
    try:
        paths.root.mkdir(parents=True, exist_ok=True)
        with hold_lock(paths.pipeline_lock):
            plan = _plan(paths, added, is_upgrade=is_upgrade)
            for name, text in plan.texts.items():
                write_text_atomically(paths.root / name, text)
            _begin_versioning(paths)
            if plan.pipeline is not None:  # last: a project without it is not whole
                save_pipeline(paths, plan.pipeline)
    except OSError as error:
        raise ProjectError(
            f"{error.filename or paths.root} must be writable",
            found=error.strerror or str(error),
            run=advise_on_writing(error),
        ) from None
    return plan


def _plan(paths: ProjectPaths, added: Sequence[str], *, is_upgrade: bool) -> Plan:
    is_new = not paths.pipeline_file.is_file()
    if is_new and not is_upgrade and paths.params.is_file() and paths.cards.is_dir():
        raise _older(paths, "a project without registry/pipeline.yaml")
    before = PipelineFile() if is_new else load_pipeline(paths)
    old_corpora = _find_old_corpora(paths) if is_new else None
    corpora = list(before.corpora) if old_corpora is None and not is_new else old_corpora
    ids = list(FIRST_CORPORA) if corpora is None else corpora
    taken = [name for name in before.files if name.startswith(f"{WORKFLOWS_FOLDER}/")]
    names = dict.fromkeys([*OWN_FILES, *_list_cards(paths, ids), *taken, *added])
    texts, files, notes = _compare(paths, names, before.files)
    if _has_moved(paths):
        texts.pop(f"{PARAMS_FILE}{NEW}", None)
        mended = paths.params.with_name(f"{PARAMS_FILE}{NEW}")
        if is_new or not mended.is_file():
            texts[mended.name] = _remove_moved(paths.params.read_text(encoding="utf-8"))
        notes = [note for note in notes if not note.startswith(PARAMS_FILE)]
        notes.append(f"{PARAMS_FILE} says which corpora are built: mv {mended.name} {PARAMS_FILE}")
    if not (paths.root / ".dvc").exists():
        texts |= {name: _load_shipped(name) for name in DVC_FILES}
    content = replace(
        before,
        corpora={**before.corpora, **_make_entries(paths, ids)},
        watched=find_watched(paths, str(_read_old(paths).get("model") or "cog-v0")),
        versions=dict(VERSIONS),
        files=files,
    )
    if is_upgrade:
        notes += _tell_versions(before, content)
    elif not is_new:
        if content.versions != before.versions or any(
            files.get(name) != digest for name, digest in before.files.items()
        ):
            raise _older(paths, "files or outputs of an earlier version")
        content = replace(before, files=files)
    return Plan(texts, None if content == before and not is_new else content, tuple(notes))


def _compare(
    paths: ProjectPaths, names: Iterable[str], written: dict[str, str]
) -> tuple[dict[str, str], dict[str, str], list[str]]:
    # what is to be written, what of it is remembered, and what a person is told
    texts: dict[str, str] = {}
    files, notes = dict(written), []
    for name in names:
        shipped = _load_shipped(name)
        digest, path = _digest(shipped), paths.root / name
        there = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else None
        if there is None or (there != shipped and written.get(name) == _digest(there)):
            texts[name] = shipped
        elif there != shipped and written.get(name) != digest:  # edited, and there is news
            texts[f"{name}{NEW}"] = shipped
            notes.append(f"{name} is yours and stays: take over what {name}{NEW} has")
        files[name] = digest
    return texts, files, notes


def _list_cards(paths: ProjectPaths, corpus_ids: Iterable[str]) -> list[str]:
    # of the package, with those that they extend; cards of the project's own are left alone
    found: dict[str, None] = {}
    for corpus_id in corpus_ids:
        for each in (corpus_id, _find_root(paths, corpus_id)):
            if paths.shipped_card(each).is_file():
                found[f"{REGISTRY_FOLDER}/cards/{each}.yaml"] = None
    return list(found)


def _find_root(paths: ProjectPaths, corpus_id: str) -> str:
    try:
        return load_card(paths, corpus_id).root
    except CogError:  # a broken card; `cog corpus validate` tells it
        return corpus_id


def _make_entries(paths: ProjectPaths, corpus_ids: Iterable[str]) -> dict[str, Any]:
    entries = {}
    for corpus_id in corpus_ids:
        try:
            entries[corpus_id] = make_entry(load_resolved_card(paths, corpus_id))
        except CogError:
            continue
    return entries


def _tell_versions(before: PipelineFile, after: PipelineFile) -> list[str]:
    changed = [name for name, each in after.versions.items() if before.versions.get(name) != each]
    return [f"dvc repro runs again: {', '.join(changed)}"] if changed else []


def _read_old(paths: ProjectPaths) -> dict[str, Any]:
    try:
        content = parse_yaml(paths.params.read_text(encoding="utf-8"))
    except (OSError, YamlError, UnicodeDecodeError):  # load_params tells it
        return {}
    return content if isinstance(content, dict) else {}


def _find_old_corpora(paths: ProjectPaths) -> list[str] | None:
    # what params.yaml of an older cog lists; None if there is no such list
    corpora = _read_old(paths).get("corpora", ())
    if corpora is None or isinstance(corpora, dict):
        return [str(name) for name in corpora or ()]
    return None


def _has_moved(paths: ProjectPaths) -> bool:
    content = _read_old(paths)
    sections = [content, *(each for each in content.values() if isinstance(each, dict))]
    return any("corpora" in section for section in sections)


def _remove_moved(text: str) -> str:
    """Take the lines out of an older params.yaml that say which corpora are built."""
    kept: list[str] = []
    depth = None
    tops = {keys.partition(".")[0] for keys in MOVED}
    section = ""
    for line in text.splitlines(keepends=True):
        indent = len(line) - len(line.lstrip(" "))
        is_blank = not line.strip() or line.lstrip().startswith("#")
        if depth is not None and line.strip() and indent <= depth:
            depth = None
        if depth is not None:
            continue
        if not is_blank and indent == 0:
            section = line.partition(":")[0]
        if line.lstrip().startswith("corpora:") and section in tops and indent <= 2:
            depth = indent
            continue
        kept.append(line)
    return "".join(kept)


def _begin_versioning(paths: ProjectPaths) -> None:
    # `git init` where there is no checkout; DVC is told where there can be none
    local = paths.root / ".dvc" / "config.local"
    has_git = run_git(paths.root, "rev-parse", "--is-inside-work-tree") or run_git(
        paths.root, "init"
    )
    if not has_git and not local.exists():
        write_text_atomically(local, NO_GIT)
    elif has_git and local.is_file() and local.read_text(encoding="utf-8") == NO_GIT:
        local.unlink()


def _refuse_nested(paths: ProjectPaths) -> None:
    for above in paths.root.parents:
        if (above / PARAMS_FILE).is_file() and (above / REGISTRY_FOLDER).is_dir():
            raise ProjectError(
                f"{paths.root.name} must not lie in another project",
                found=f"one in {above}",
                run="choose a folder outside of it",
            )


def _older(paths: ProjectPaths, found: str) -> ProjectError:
    return ProjectError(
        f"{paths.root.name} must be a project of the installed cog", found=found, run=UPGRADE
    )


def _load_shipped(name: str) -> str:
    return get_shipped(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
