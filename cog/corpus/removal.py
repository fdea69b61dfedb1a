"""Removing a corpus: an id goes in; every trace of it goes, or what would go comes out."""

import contextlib
import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from cog.cards import check_corpus_id
from cog.corpus.dvc_cache import find_cached_files, find_revision
from cog.dvc_lock import load_outs, remove_stages
from cog.errors import CogError, CorpusNotFoundError, RegistryError
from cog.locks import hold_lock
from cog.paths import ProjectPaths
from cog.pipeline_file import load_pipeline, remove_corpus_entry
from cog.registry import (
    check_childless,
    forget_fetched,
    forget_previous,
    iter_corpus_ids,
    load_active,
    load_card,
    load_fetched,
    load_previous,
)


@dataclass(frozen=True, slots=True)
class RemovalPlan:
    """What there is of a corpus, all of which goes with it."""

    paths: tuple[Path, ...]  # files and folders that are its own
    entries: tuple[str, ...]  # entries in files that stay, as `file: entry`
    addresses: tuple[str, ...]  # of the web, whose checksums are kept for it alone
    cached: tuple[Path, ...]  # files in DVC's cache that only it needs

    def describe(self, root: Path) -> list[str]:
        """Name everything, one line each; cached files as one."""
        lines = [str(path.relative_to(root)) for path in self.paths]
        lines += self.entries
        if self.cached:
            size = sum(path.stat().st_size for path in self.cached)
            lines.append(f"DVC's cache: {len(self.cached)} files, {size / 1e6:.1f} MB")
        return lines


def remove_corpus(
    paths: ProjectPaths,
    corpus_id: str,
    *,
    is_trial: bool,
    hold: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext,
) -> list[str]:
    """Remove a corpus and every trace of it: card, entries, pointers, all that was built, caches.

    ``registry/history.jsonl`` keeps its lines, MLflow its runs, git its commits, and DVC's cache
    what they name. ``hold`` keeps others from building the corpus and from switching to it
    meanwhile. Gives what is gone, or would be after a trial.
    """
    check_corpus_id(corpus_id)
    _check_inactive(paths, corpus_id)
    check_childless(paths, corpus_id)
    plan = _plan_removal(paths, corpus_id)
    gone = plan.describe(paths.root)
    if not gone:
        raise CorpusNotFoundError(
            f"corpus {corpus_id!r} needs a card to be removed", found="none", run="cog corpus list"
        )
    if is_trial:
        return gone
    with hold():
        _check_inactive(paths, corpus_id)
        _remove(paths, corpus_id, plan)
    return gone


def _check_inactive(paths: ProjectPaths, corpus_id: str) -> None:
    active = load_active(paths)
    if active is not None and corpus_id in active.corpora:
        raise RegistryError(
            f"corpus {corpus_id} must not be active to be removed",
            found=f"{active.corpus} is switched on",
            run="cog switch --corpus OTHER, or cog rollback",
        )


def _remove(paths: ProjectPaths, corpus_id: str, plan: RemovalPlan) -> None:
    # Entries go first: the pipeline never names a corpus without a card.
    with hold_lock(paths.pipeline_lock):
        for lock in paths.iter_dvc_locks():
            remove_stages(lock, corpus_id)
        remove_corpus_entry(paths, corpus_id)
    forget_previous(paths, corpus_id)
    if plan.addresses:
        forget_fetched(paths, plan.addresses)
    for path in plan.cached:
        path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            path.parent.rmdir()  # if it is empty now
    for path in (*plan.paths, *_iter_locks(paths, corpus_id)):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _plan_removal(paths: ProjectPaths, corpus_id: str) -> RemovalPlan:
    """Find everything there is of a corpus; nothing is changed."""
    entries = []
    if corpus_id in load_pipeline(paths).corpora:
        entries.append(f"the entry {corpus_id} of {paths.pipeline_file.relative_to(paths.root)}")
    for lock in paths.iter_dvc_locks():
        if any(path.startswith(f"corpora/{corpus_id}/") for path in load_outs(lock)):
            entries.append(f"the stages of {corpus_id} in {lock.relative_to(paths.root)}")
    num_previous = sum(corpus_id in each.corpora for each in load_previous(paths))
    if num_previous:
        name = paths.active.relative_to(paths.root)
        entries.append(f"{num_previous} earlier switches to {corpus_id} in {name}")
    # without a card here, but with one at another git revision, what is cached may be that one's
    card = paths.card(corpus_id)
    is_elsewhere = not card.is_file() and find_revision(paths, card)
    cached = [] if is_elsewhere else find_cached_files(paths, corpus_id)
    own, addresses = tuple(_iter_paths(paths, corpus_id)), _find_addresses(paths, corpus_id)
    entries += [f"{paths.fetched.relative_to(paths.root)}: {each}" for each in addresses]
    return RemovalPlan(own, tuple(entries), tuple(addresses), tuple(cached))


def _find_addresses(paths: ProjectPaths, corpus_id: str) -> list[str]:
    # of its card, be it the project's or one that the package ships, and of no other's
    others = {
        address
        for each in iter_corpus_ids(paths)
        if each != corpus_id
        for address in _list_addresses(paths, each)
    }
    own = set(_list_addresses(paths, corpus_id)) - others
    return sorted(own & load_fetched(paths).keys()) if own else []


def _list_addresses(paths: ProjectPaths, corpus_id: str) -> list[str]:
    try:
        source = load_card(paths, corpus_id).source
    except CogError:  # a card that is missing or broken names none
        return []
    return [url.partition("#")[0] for url in source.urls] if source is not None else []


def _iter_paths(paths: ProjectPaths, corpus_id: str) -> Iterator[Path]:
    for path in (paths.card(corpus_id), paths.corpus(corpus_id).root):
        if path.exists():
            yield path
    yield from _iter_locks(paths, corpus_id)
    for folder in sorted(paths.corpus(corpus_id).root.parent.glob("*")):
        if folder.name != corpus_id and corpus_id in folder.name.split("+"):
            yield folder  # evaluations of a union
        elif folder.name != corpus_id:
            yield from _iter_evaluations(folder / "evaluations", corpus_id)


def _iter_locks(paths: ProjectPaths, corpus_id: str) -> Iterator[Path]:
    lock = re.compile(rf"{re.escape(corpus_id)}-(build|versions|[0-9a-f]{{16}}(-\d+)?)\.lock")
    for path in sorted(paths.locks.glob("*.lock")):
        if lock.fullmatch(path.name):
            yield path


def _iter_evaluations(folder: Path, corpus_id: str) -> Iterator[Path]:
    # texts that continue the prompts of the corpus, written from another one
    for path in [*sorted(folder.glob("*.json")), *sorted(folder.glob("*/run.json"))]:
        try:
            content = json.loads(path.read_bytes())
        except (OSError, ValueError):
            continue
        if isinstance(content, dict) and content.get("prompt_corpus") == corpus_id:
            yield path if path.name != "run.json" else path.parent
