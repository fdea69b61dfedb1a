"""What is switched on: a corpus id goes in, its index is checked quickly and made the active one.

Neither torch nor a store is loaded: a switch takes well under a second as a whole process.
"""

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cog.errors import CogError, IndexMismatchError, NothingActiveError, RegistryError
from cog.index.kept import find_version, prune_versions
from cog.index.locks import hold_versions_lock
from cog.index.manifest import check_index, load_manifest
from cog.index.records import Manifest
from cog.index.resolve import resolve_version
from cog.model.fingerprint import fingerprint_model
from cog.params import Params, load_params
from cog.paths import CorpusPaths, ProjectPaths
from cog.records import Active
from cog.registry import (
    iter_corpus_ids,
    load_active,
    load_card,
    load_previous,
    rollback_active,
    switch_active,
)


@dataclass(frozen=True, slots=True)
class Change:
    """What a switch or a rollback changed.

    :param before: What was active; None if nothing was.
    :param after: What is active now.
    """

    before: Active | None
    after: Active

    @property
    def is_change(self) -> bool:
        """Whether anything differs but the time.

        :returns: True if it does.
        """
        before, after = self.before, self.after
        return before is None or (before.corpus, before.index, before.model) != (
            after.corpus,
            after.index,
            after.model,
        )


@dataclass(frozen=True, slots=True)
class Status:
    """What is active, and whether it can be used.

    :param active: What is active; None if nothing is, or the record cannot be read.
    :param manifest: Its index; None if that cannot be used.
    :param problem: What is wrong; empty if nothing is.
    :param run: The command to run next; empty if none is needed.
    """

    active: Active | None
    manifest: Manifest | None
    problem: str
    run: str

    @property
    def is_broken(self) -> bool:
        """Whether something is active that cannot be used.

        :returns: True if so.
        """
        return bool(self.problem)

    def to_json(self) -> dict[str, Any]:
        """The status as the command line writes it.

        :returns: A JSON-ready object.
        """
        manifest = self.manifest
        return {
            "active": asdict(self.active) if self.active else None,
            "intact": None if self.active is None and not self.problem else not self.problem,
            "documents": manifest.documents.num_indexed if manifest else None,
            "chunks": manifest.num_chunks if manifest else None,
            "words": manifest.num_words if manifest else None,
            "problem": self.problem or None,
            "next": self.run or None,
        }


def switch_corpus(paths: ProjectPaths, corpus_id: str, *, index: str | None = None) -> Change:
    """Make a corpus and its index the active ones, atomically, after quick checks.

    :param paths: The project.
    :param corpus_id: The corpus.
    :param index: Digest of a version of the index, the beginning of one, or a git revision; a
        version that is not here is brought back from DVC's cache or remote. None for the one in
        place.
    :returns: What changed.
    :raises IndexMismatchError: If there is no such index, or it is damaged, or of another model.
    """
    load_card(paths, corpus_id)
    command = f"cog switch --corpus {corpus_id}" + ("" if index is None else f" --index {index}")
    with hold_versions_lock(paths.locks, corpus_id):
        place = paths.corpus(corpus_id)
        if index is not None:
            place, _ = resolve_version(paths, corpus_id, index)
        manifest = _check(paths, place)
        switched_at = datetime.now(UTC).isoformat(timespec="seconds")
        after = Active(corpus_id, manifest.digest, manifest.model, switched_at)
        before = switch_active(paths, after, command=command)
        prune_versions(paths.corpus(corpus_id), get_kept(paths, corpus_id), locks=paths.locks)
    change = Change(before, after)
    return change if change.is_change or before is None else Change(before, before)


def rollback_corpus(paths: ProjectPaths) -> Change:
    """Go back to what was active before the last switch, after the checks of a switch.

    An index that was replaced since is brought back.

    :param paths: The project.
    :returns: What changed.
    :raises NothingActiveError: If there is nothing to go back to.
    """
    previous = load_previous(paths)
    if not previous:
        before, after = rollback_active(paths, command="cog rollback")
        return Change(before, after)
    target = previous[0]
    with hold_versions_lock(paths.locks, target.corpus):
        if find_version(paths.corpus(target.corpus), target.index) is None:
            resolve_version(paths, target.corpus, target.index)
        _check_active(paths, target)
        before, after = rollback_active(paths, command="cog rollback")
        if after != target:
            raise NothingActiveError(
                "rollback needs active.yaml to itself",
                found="another switch at the same time",
                run="cog status",
            )
        kept = get_kept(paths, target.corpus)
        prune_versions(paths.corpus(target.corpus), kept, locks=paths.locks)
    return Change(before, after)


def get_kept(paths: ProjectPaths, corpus_id: str) -> set[str]:
    """Digests of the versions of a corpus that must stay when they are replaced.

    :param paths: The project.
    :param corpus_id: The corpus.
    :returns: What is active, and what a rollback goes back to.
    """
    try:
        records = [load_active(paths), *load_previous(paths)[:1]]
    except RegistryError:
        return set()
    return {each.index for each in records if each is not None and each.corpus == corpus_id}


def get_status(paths: ProjectPaths) -> Status:
    """Say what is active, and whether it is intact.

    :param paths: The project.
    :returns: The status; problems are part of it.
    """
    active = None
    try:
        active = load_active(paths)
        if active is None:
            return Status(None, None, problem="", run=f"cog switch --corpus {_get_example(paths)}")
        manifest = _check_active(paths, active)
        return Status(active, manifest, problem="", run=_find_newer(paths, active))
    except CogError as error:
        found = f" (found: {error.found})" if error.found else ""
        return Status(active, None, problem=f"{error.wanted}{found}", run=error.run)


def get_model_folder(paths: ProjectPaths, params: Params) -> Path:
    """Where the project's model lies.

    :param paths: The project.
    :param params: params.yaml.
    :returns: The folder.
    """
    return paths.root / params.model


def _check(paths: ProjectPaths, place: CorpusPaths) -> Manifest:
    model_folder = get_model_folder(paths, load_params(paths.params))
    return check_index(
        place, model_fingerprint=fingerprint_model(model_folder), documents_digest=None
    )


def _check_active(paths: ProjectPaths, active: Active) -> Manifest:
    load_card(paths, active.corpus)
    corpus_paths = paths.corpus(active.corpus)
    place = find_version(corpus_paths, active.index)
    if place is None:
        _check(paths, corpus_paths)  # says what is wrong, where more than the version is
        raise IndexMismatchError(
            f"corpus {active.corpus} needs index {active.index[:16]}, which was switched on",
            found="no such version on this machine",
            run=f"cog switch --corpus {active.corpus}",
            about=active.corpus,
        )
    manifest = _check(paths, place)
    if active.model != manifest.model:
        raise IndexMismatchError(
            f"corpus {active.corpus} needs model {active.model[:16]}, which was switched on",
            found=f"model {manifest.model[:16]}",
            run=f"cog switch --corpus {active.corpus}",
            about=active.corpus,
        )
    return manifest


def _find_newer(paths: ProjectPaths, active: Active) -> str:
    # the command that switches to what was built since, if anything was
    try:
        newest = load_manifest(paths.corpus(active.corpus)).digest
    except CogError:
        return ""
    return "" if newest == active.index else f"cog switch --corpus {active.corpus}"


def _get_example(paths: ProjectPaths) -> str:
    # a corpus that is built, so that the command can be pasted
    built = (name for name in iter_corpus_ids(paths) if paths.corpus(name).manifest.is_file())
    return next(built, "ID")
