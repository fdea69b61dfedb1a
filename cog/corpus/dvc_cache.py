"""DVC's cache: a corpus id goes in, the cached files that nothing else needs come out."""

import configparser
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from cog.git import run_git
from cog.paths import CorpusPaths, ProjectPaths

if TYPE_CHECKING:
    from dvc.output import Output
    from dvc.repo import Repo


def get_dvc_cache(paths: ProjectPaths) -> Path:
    """Where DVC keeps the files of this project; it may be shared with others, or not be there."""
    folder = paths.root / ".dvc"
    config = configparser.ConfigParser(interpolation=None, strict=False)
    for name in ("config", "config.local"):
        try:
            config.read(folder / name, encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError):
            continue
    return folder / Path(config.get("cache", "dir", fallback="cache")).expanduser()


def find_cached_files(paths: ProjectPaths, corpus_id: str) -> list[Path]:
    """Find the cached files of a corpus that nothing else needs.

    DVC says what is in use: by whatever file of the working tree, and at every git revision that
    changed one of DVC's files. A cache outside the project may serve other projects: nothing in it
    counts. Neither does anything if DVC cannot read one of them.
    """
    cache = get_dvc_cache(paths).resolve()
    if not cache.is_relative_to(paths.root.resolve()) or not cache.is_dir():
        return []
    from dvc.exceptions import DvcException  # without a cache nobody needs DVC
    from dvc.repo import Repo

    own: set[Path] = set()
    used: set[Path] = set()
    try:
        with Repo(str(paths.root)) as repo:
            for corpus in paths.corpora.glob("*/"):
                recorded = set(_list_recorded(repo, CorpusPaths(corpus).recorded))
                (own if corpus.name == corpus_id else used).update(recorded)
            # the working tree comes first, under a name that is no revision
            for revision in repo.brancher(revs=_list_revisions(paths) or None):
                is_here = revision in ("", "workspace")
                for out in repo.index.outs:
                    folder = paths.corpus(corpus_id).root.resolve()
                    is_own = is_here and Path(out.fs_path).is_relative_to(folder)
                    (own if is_own else used).update(_list_objects(out))
    except DvcException:
        return []
    return sorted(path for path in own - used if path.is_file())


def find_revision(paths: ProjectPaths, file: Path) -> str:
    """The newest git revision, of whatever branch, that touched a file; empty if there is none."""
    name = file.relative_to(paths.root).as_posix()
    return run_git(paths.root, "log", "--all", "--max-count=1", "--format=%h", "--", name)


def _list_revisions(paths: ProjectPaths) -> list[str]:
    # what DVC reads is the same at all others; `--full-history` follows both sides of a merge
    files = ("*dvc.lock", "*dvc.yaml", "*.dvc", "*params.yaml")
    return run_git(
        paths.root, "log", "--all", "--full-history", "--format=%H", "--", *files
    ).split()


def _list_objects(out: "Output") -> Iterator[Path]:
    if out.hash_info and out.use_cache:
        for objects in out.get_used_objs().values():
            yield from (Path(out.cache.oid_to_path(each.value)) for each in objects)


def _list_recorded(repo: "Repo", path: Path) -> Iterator[Path]:
    from dvc_data.hashfile.hash_info import HashInfo
    from dvc_data.hashfile.tree import Tree
    from dvc_objects.errors import ObjectFormatError

    odb = repo.cache.local
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        with contextlib.suppress(ValueError, KeyError, TypeError, OSError, ObjectFormatError):
            content = json.loads(line)
            folder = HashInfo("md5", content["index_md5"])
            yield Path(odb.oid_to_path(content["manifest_md5"]))
            yield Path(odb.oid_to_path(folder.value))
            yield from (Path(odb.oid_to_path(oid.value)) for _, _, oid in Tree.load(odb, folder))
