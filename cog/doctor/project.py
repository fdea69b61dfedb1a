"""Checks of a whole project: model, what is active, DVC, MLflow, locks and disk."""

import contextlib
import hashlib
import json
import os
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from cog.cards import check_corpus_id
from cog.corpus.dvc_cache import get_dvc_cache
from cog.doctor.corpora import (
    check_corpus_index,
    check_files,
    check_leftovers,
    find_strays,
)
from cog.doctor.install import check_install, find_schema_problem
from cog.doctor.records import Finding, from_error
from cog.dvc_lock import is_readable, load_outs
from cog.errors import CogError
from cog.extras import is_installed
from cog.index.versions.activation import get_status
from cog.index.versions.manifest import load_manifest
from cog.model.fingerprint import fingerprint_model
from cog.params import Params, load_params
from cog.paths import ProjectPaths
from cog.pipeline_file import load_pipeline
from cog.progress import Progress
from cog.registry import iter_corpus_ids, load_card

MIN_FREE_BYTES = 500_000_000


def examine(
    paths: ProjectPaths, corpus_id: str | None, *, progress: Progress, is_quick: bool
) -> list[Finding]:
    """Check a project, or one corpus of it; nothing is written.

    Quickly: rows and bytes of indexes are left unread.
    """
    params = load_params(paths.params)
    findings: list[Finding] = []
    fingerprint = None
    try:
        fingerprint = fingerprint_model(paths.model(params.model))
    except CogError as error:
        findings.append(from_error("model", params.model, error, run=_restore(params, error.run)))
    if corpus_id is not None and not paths.corpus(check_corpus_id(corpus_id)).root.exists():
        load_card(paths, corpus_id)  # refuses what is not there
    ids = list(iter_corpus_ids(paths)) if corpus_id is None else [corpus_id]
    for each in ids:
        findings += check_files(paths, each)
        findings += check_corpus_index(
            paths,
            each,
            params=params,
            fingerprint=fingerprint,
            progress=progress,
            is_quick=is_quick,
        )
        findings += check_leftovers(paths, each)
        findings += check_dvc_outs(paths, each)
    if corpus_id is None:
        findings += [*find_strays(paths), *check_entries(paths), *check_active(paths)]
        findings += [*check_dvc(paths), *check_mlflow(paths), *check_install()]
    return [*findings, *check_disk(paths, ids)]


def check_entries(paths: ProjectPaths) -> Iterator[Finding]:
    """Check that every corpus that the pipeline builds has a card in the project."""
    for corpus_id in load_pipeline(paths).corpora:
        if not paths.card(corpus_id).is_file():
            problem = f"{paths.pipeline_file.name} builds it, and it has no card"
            yield Finding("pipeline", corpus_id, problem, f"cog corpus remove {corpus_id}")


def check_active(paths: ProjectPaths) -> Iterator[Finding]:
    """Check what is switched on."""
    status = get_status(paths)
    if status.is_broken:
        name = paths.active.relative_to(paths.root)
        yield Finding("active", str(name), status.problem, status.run or "cog rollback")


def check_dvc(paths: ProjectPaths) -> Iterator[Finding]:
    """Check DVC's own files: dvc.lock, and locks of processes that are gone."""
    if not is_readable(paths.dvc_lock):
        name = paths.dvc_lock.name
        yield Finding("dvc", name, "DVC cannot read it", f"git checkout HEAD {name}, or rm {name}")
    lock = paths.root / ".dvc" / "tmp" / "rwlock"
    with contextlib.suppress(OSError, ValueError):
        holders = set(_iter_pids(json.loads(lock.read_bytes())))
        if holders and not any(map(_is_running, holders)):
            held = lock.relative_to(paths.root)
            yield Finding("lock", str(held), "held by a process that is gone", f"rm {held}")


def check_dvc_outs(paths: ProjectPaths, corpus_id: str) -> Iterator[Finding]:
    """Check that what dvc.lock says of a corpus is there, and its index the one DVC knows."""
    stages = {
        "raw": "fetch",
        "documents.parquet": "prepare",
        "prompts.parquet": "prepare",
        "index": "index",
        "manifest.json": "index",
        "generations.jsonl": "generate",
        "evaluation.json": "evaluate",
    }
    cache = get_dvc_cache(paths)
    root = paths.corpus(corpus_id).root
    for out, md5 in load_outs(paths.dvc_lock).items():
        path = paths.root / out
        if path.parent != root or path.name not in stages:
            continue
        stage = f"{stages[path.name]}@{corpus_id}"
        if not path.exists():
            is_cached = (cache / "files" / "md5" / md5[:2] / md5[2:]).is_file()
            run = f"dvc checkout {out}" if is_cached else f"dvc repro {stage}"
            yield Finding("dvc", out, "dvc.lock names it, and it is not there", run)
        elif path.name == "manifest.json" and hashlib.md5(path.read_bytes()).hexdigest() != md5:
            problem = "the index was built since DVC recorded it"
            yield Finding("dvc", out, problem, f"dvc commit --force {stage}")


def check_mlflow(paths: ProjectPaths) -> Iterator[Finding]:
    """Check where runs are tracked, without writing to it."""
    from cog.evaluation.tracking import choose_uri

    try:
        if is_installed("mlflow"):
            choose_uri(paths)
    except CogError as error:
        yield from_error("mlflow", "MLFLOW_TRACKING_URI", error)
    if not paths.runs_database.is_file():
        return
    name = paths.runs_database.name
    try:
        uri = f"{paths.runs_database.resolve().as_uri()}?mode=ro&immutable=1"
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as database:
            (state,) = database.execute("PRAGMA quick_check(1)").fetchone()
            tables = {row[0] for row in database.execute("SELECT name FROM sqlite_master")}
            problem, run = "", ""
            if "alembic_version" in tables:
                problem, run = find_schema_problem(database, name)
    except sqlite3.Error as error:
        state, tables, problem = str(error), {"runs"}, ""
    if state != "ok":
        run = f"mv {name} {name}.broken, then cog evaluate logs to a new one"
        yield Finding("mlflow", name, f"the database of runs is damaged: {state}", run)
    elif "runs" not in tables:
        run = f"mlflow db upgrade sqlite:///{name}"
        yield Finding("mlflow", name, "the database has no table of runs", run)
    elif problem:
        yield Finding("mlflow", name, problem, run)


def check_disk(paths: ProjectPaths, corpus_ids: list[str]) -> Iterator[Finding]:
    """Check that the largest index can be built again beside the one that serves."""
    needed = MIN_FREE_BYTES
    for corpus_id in corpus_ids:
        with contextlib.suppress(CogError):
            files = load_manifest(paths.corpus(corpus_id)).files.values()
            needed = max(needed, 2 * sum(entry.size_bytes for entry in files))
    free = shutil.disk_usage(paths.root).free
    if free < needed:
        problem = f"{free / 1e9:.1f} GB free, building the largest index takes {needed / 1e9:.1f}"
        yield Finding("disk", ".", problem, "dvc gc --workspace")


def _restore(params: Params, otherwise: str) -> str:
    return f"git checkout HEAD {Path(params.model).as_posix()}" + (
        f", or {otherwise}" if otherwise else ""
    )


def _is_running(pid: object) -> bool:
    try:
        os.kill(int(str(pid)), 0)
    except PermissionError:
        return True
    except (ValueError, ProcessLookupError, OverflowError):
        return False
    return True


def _iter_pids(content: object) -> Iterator[object]:
    if isinstance(content, dict):
        if "pid" in content:
            yield content["pid"]
        for each in content.values():
            yield from _iter_pids(each)
    elif isinstance(content, list):
        for each in content:
            yield from _iter_pids(each)
