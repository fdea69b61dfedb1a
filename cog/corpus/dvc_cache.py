"""DVC's cache: a corpus id goes in, the cached files that nothing else needs come out."""

import configparser
import json
import re
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

from cog.dvc_lock import read_outs
from cog.paths import ProjectPaths

MAX_REVISIONS = 1000


def get_dvc_cache(paths: ProjectPaths) -> Path:
    """Where DVC keeps the files of this project.

    :param paths: The project.
    :returns: The folder; it may be shared with other projects, or not be there.
    """
    folder = paths.root / ".dvc"
    config = configparser.ConfigParser(interpolation=None, strict=False)
    for name in ("config", "config.local"):
        try:
            config.read(folder / name, encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError):
            continue
    return folder / Path(config.get("cache", "dir", fallback="cache")).expanduser()


def find_cached_files(paths: ProjectPaths, corpus_id: str) -> list[Path]:
    """Find the cached files of a corpus that no other corpus needs.

    What dvc.lock names counts, now and at every git revision, and versions that were recorded. A
    cache outside the project may serve other projects: nothing in it counts.

    :param paths: The project.
    :param corpus_id: The corpus.
    :returns: Files in alphabetical order.
    """
    cache = get_dvc_cache(paths).resolve()
    if not cache.is_relative_to(paths.root.resolve()):
        return []
    own: set[str] = set()
    other: set[str] = set()
    prefix = f"corpora/{corpus_id}/"
    for outs in _iter_outs(paths):
        for path, md5 in outs.items():
            (own if path.startswith(prefix) else other).add(md5)
    own |= set(_read_recorded(paths.corpus(corpus_id).recorded))
    only = set(_expand(cache, own)) - set(_expand(cache, other))
    runs = [
        path
        for path in sorted((cache / "runs").rglob("*"))
        if path.is_file() and _names_corpus(path, corpus_id)
    ]
    return sorted(path for path in only if path.is_file()) + runs


def _iter_outs(paths: ProjectPaths) -> Iterator[dict[str, str]]:
    name = paths.dvc_lock.name
    if paths.dvc_lock.is_file():
        yield read_outs(paths.dvc_lock.read_text(encoding="utf-8", errors="replace"))
    log = ("log", "--all", f"--max-count={MAX_REVISIONS}", "--format=%H", "--", name)
    for revision in _run_git(paths, *log).split():
        yield read_outs(_run_git(paths, "show", f"{revision}:./{name}"))


def _run_git(paths: ProjectPaths, *words: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(paths.root), *words], capture_output=True, text=True, check=False
        )
    except OSError:
        return ""
    return done.stdout if done.returncode == 0 else ""


def _read_recorded(path: Path) -> Iterator[str]:
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        try:
            content = json.loads(line)
            yield from (content["manifest_md5"], content["index_md5"])
        except (ValueError, KeyError, TypeError):
            continue


def _expand(cache: Path, hashes: Iterable[str]) -> Iterator[Path]:
    # a folder's file lists the files in it
    for md5 in hashes:
        path = _get_path(cache, md5)
        yield path
        if md5.endswith(".dir") and path.is_file():
            try:
                yield from (_get_path(cache, each["md5"]) for each in json.loads(path.read_bytes()))
            except (ValueError, KeyError, TypeError):
                continue


def _get_path(cache: Path, md5: str) -> Path:
    return cache / "files" / "md5" / md5[:2] / md5[2:]


def _names_corpus(path: Path, corpus_id: str) -> bool:
    pattern = rf"\bcorpora/{re.escape(corpus_id)}(?![a-z0-9.+-])"
    return re.search(pattern, path.read_text(encoding="utf-8", errors="replace")) is not None
