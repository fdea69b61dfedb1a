"""Recorded versions: what DVC's cache and remote hold of a corpus, as git and dvc.lock name it.

Nothing is known here of what lies beside the corpus, which is ``folders``, nor of names for both,
which is ``resolve``; neither torch nor a store is loaded. Versions are found by git revisions of
``dvc.lock``, by the one in the working tree, and by lines that a build adds before it replaces what
that names.
"""

import hashlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from cog.atomic import append_text
from cog.corpus.dvc_cache import get_dvc_cache
from cog.dvc_lock import load_outs, read_outs
from cog.errors import IndexMismatchError
from cog.git import run_git
from cog.index.versions.manifest import load_manifest
from cog.paths import CorpusPaths, ProjectPaths, is_below

MAX_REVISIONS = 1000


@dataclass(frozen=True, slots=True)
class Recorded:
    """A version that DVC knows."""

    revision: str  # git revision whose dvc.lock names it, the newest of them; empty if none does
    time: str  # when that was committed, ISO 8601; empty without a revision
    manifest_md5: str  # its manifest in DVC's cache
    index_md5: str  # its tables in DVC's cache


def iter_recorded(paths: ProjectPaths, corpus_id: str) -> Iterator[Recorded]:
    """Find the versions of a corpus that DVC knows, the newest first, each once."""
    seen: set[str] = set()
    for each in _iter_all(paths, corpus_id):
        if each is not None and each.manifest_md5 not in seen:
            seen.add(each.manifest_md5)
            yield each


def _iter_all(paths: ProjectPaths, corpus_id: str) -> Iterator[Recorded | None]:
    for revision, time in _list_revisions(paths):
        yield _read_version(paths, corpus_id, _show_outs(paths, revision), revision, time)
    yield _read_version(paths, corpus_id, load_outs(paths.dvc_lock))
    yield from reversed(_load_lines(paths.corpus(corpus_id)))


def find_revision(paths: ProjectPaths, corpus_id: str, revision: str) -> Recorded | None:
    """Find the version of a corpus at a commit, branch or tag."""
    commit = run_git(paths.root, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
    if not commit or revision.startswith("-"):
        return None
    time = run_git(paths.root, "show", "-s", "--format=%cI", commit)
    return _read_version(paths, corpus_id, _show_outs(paths, commit), commit, time)


def _show_outs(paths: ProjectPaths, commit: str) -> dict[str, str]:
    return read_outs(run_git(paths.root, "show", f"{commit}:./{paths.dvc_lock.name}"))


def _read_version(
    paths: ProjectPaths, corpus_id: str, outs: dict[str, str], revision: str = "", time: str = ""
) -> Recorded | None:
    corpus = paths.corpus(corpus_id)
    names = [path.relative_to(paths.root).as_posix() for path in (corpus.manifest, corpus.index)]
    if not all(name in outs for name in names):
        return None
    return Recorded(revision, time, outs[names[0]], outs[names[1]])


def load_recorded_manifest(paths: ProjectPaths, version: Recorded) -> dict[str, Any] | None:
    """Read what a version of any format states about itself, if DVC's cache holds that here."""
    try:
        content = json.loads(_get_cached(paths, version.manifest_md5).read_bytes())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def is_cached(paths: ProjectPaths, version: Recorded) -> bool:
    """Whether DVC's cache holds a whole version here, so that no remote is needed."""
    files = _list_cached(paths, version.index_md5)
    return (
        files is not None
        and _get_cached(paths, version.manifest_md5).is_file()
        and all(path.is_file() for path in files.values())
    )


def record_version(paths: ProjectPaths, corpus_id: str) -> None:
    """Note the version in place before it is replaced, if dvc.lock names it: no one else would."""
    corpus = paths.corpus(corpus_id)
    version = _read_version(paths, corpus_id, load_outs(paths.dvc_lock))
    if version is None or not corpus.manifest.is_file() or version in _load_lines(corpus):
        return
    if hashlib.md5(corpus.manifest.read_bytes()).hexdigest() != version.manifest_md5:
        return
    append_text(corpus.recorded, json.dumps(asdict(version)) + "\n")


def fetch_version(paths: ProjectPaths, corpus_id: str, version: Recorded) -> None:
    """Bring all of a version from DVC's remote to its cache."""
    _pull(paths, corpus_id, [version.manifest_md5, version.index_md5])
    files = _list_cached(paths, version.index_md5) or {}
    _pull(paths, corpus_id, [path.parent.name + path.name for path in files.values()])
    if not is_cached(paths, version):
        raise _not_remote(corpus_id, "the remote does not hold all of it")


def copy_cached(paths: ProjectPaths, version: Recorded, place: CorpusPaths) -> None:
    """Copy a version that DVC's cache holds."""
    place.root.mkdir(parents=True)
    shutil.copyfile(_get_cached(paths, version.manifest_md5), place.manifest)
    folder = load_manifest(place).folder
    for name, path in (_list_cached(paths, version.index_md5) or {}).items():
        if name.split("/")[0] == folder:  # a version folder that a reader held may lie beside it
            (place.index / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, place.index / name)


def fetch_manifest(paths: ProjectPaths, corpus_id: str, version: Recorded) -> dict[str, Any]:
    """Read what a version states about itself, from DVC's remote."""
    _pull(paths, corpus_id, [version.manifest_md5])
    return load_recorded_manifest(paths, version) or {}


def _pull(paths: ProjectPaths, corpus_id: str, checksums: list[str]) -> None:
    # by checksum, as DVC is configured now: an old revision's own config may know no remote
    from dvc.exceptions import DvcException
    from dvc.repo import Repo
    from dvc_data.hashfile.hash_info import HashInfo

    try:
        with Repo(str(paths.root)) as repo:
            repo.cloud.pull([HashInfo("md5", checksum) for checksum in checksums])
    except (DvcException, OSError) as error:
        raise _not_remote(corpus_id, str(error) or type(error).__name__) from error


def _not_remote(corpus_id: str, found: str) -> IndexMismatchError:
    return IndexMismatchError(
        f"corpus {corpus_id} needs its older index from DVC's remote",
        found=found,
        run=f"dvc push where it was built, then cog corpus versions {corpus_id}",
    )


def _get_cached(paths: ProjectPaths, md5: str) -> Path:
    return get_dvc_cache(paths) / "files" / "md5" / md5[:2] / md5[2:]


def _list_cached(paths: ProjectPaths, md5: str) -> dict[str, Path] | None:
    try:
        entries = json.loads(_get_cached(paths, md5).read_bytes())
        files = {each["relpath"]: _get_cached(paths, each["md5"]) for each in entries}
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return files if all(map(is_below, files)) else None  # copied from there to where they say


def _list_revisions(paths: ProjectPaths) -> list[tuple[str, str]]:
    words = ("log", "--all", f"--max-count={MAX_REVISIONS}", "--format=%H %cI", "--")
    text = run_git(paths.root, *words, paths.dvc_lock.name)
    return [(line.split()[0], line.split()[1]) for line in text.splitlines() if " " in line]


def _load_lines(corpus: CorpusPaths) -> list[Recorded]:
    found = []
    lines = corpus.recorded.read_text(encoding="utf-8") if corpus.recorded.is_file() else ""
    for line in lines.splitlines():
        try:
            content = json.loads(line)
            found.append(Recorded(**{each.name: content[each.name] for each in fields(Recorded)}))
        except (ValueError, KeyError, TypeError):
            continue
    return [replace(each, revision="", time="") for each in found]
