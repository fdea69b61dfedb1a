"""What is switched on: a corpus id goes in, its index is checked quickly and made the active one.

Neither torch nor a store is loaded: a switch takes well under a second as a whole process.
"""

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cog.errors import CogError, IndexMismatchError, NothingActiveError
from cog.index.manifest import check_index
from cog.index.records import Manifest
from cog.model.fingerprint import fingerprint_model
from cog.params import Params, load_params
from cog.paths import ProjectPaths
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
    :param index: Digest the index must have, or the first digits of it; None for any.
    :returns: What changed.
    :raises IndexMismatchError: If the index is another, damaged, or of another model.
    """
    load_card(paths, corpus_id)
    manifest = _check(paths, corpus_id)
    if index is not None and (not index or not manifest.digest.startswith(index.lower())):
        raise IndexMismatchError(
            f"corpus {corpus_id} needs an index {index!r}",
            found=f"index {manifest.digest[:16]}",
            run=f"cog switch --corpus {corpus_id}",
            about=corpus_id,
        )
    switched_at = datetime.now(UTC).isoformat(timespec="seconds")
    after = Active(corpus_id, manifest.digest, manifest.model, switched_at)
    before = switch_active(paths, after)
    change = Change(before, after)
    return change if change.is_change or before is None else Change(before, before)


def rollback_corpus(paths: ProjectPaths) -> Change:
    """Go back to what was active before the last switch, after the checks of a switch.

    :param paths: The project.
    :returns: What changed.
    :raises NothingActiveError: If there is nothing to go back to.
    """
    previous = load_previous(paths)
    if previous:
        _check_active(paths, previous[0])
    before, after = rollback_active(paths)
    if previous and after != previous[0]:
        raise NothingActiveError(
            "rollback needs active.yaml to itself",
            found="another switch at the same time",
            run="cog status",
        )
    return Change(before, after)


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
        return Status(active, _check_active(paths, active), problem="", run="")
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


def _check(paths: ProjectPaths, corpus_id: str) -> Manifest:
    model_folder = get_model_folder(paths, load_params(paths.params))
    return check_index(
        paths.corpus(corpus_id),
        model_fingerprint=fingerprint_model(model_folder),
        documents_digest=None,
    )


def _check_active(paths: ProjectPaths, active: Active) -> Manifest:
    load_card(paths, active.corpus)
    manifest = _check(paths, active.corpus)
    for what, wanted, found in (
        ("index", active.index, manifest.digest),
        ("model", active.model, manifest.model),
    ):
        if wanted != found:
            raise IndexMismatchError(
                f"corpus {active.corpus} needs {what} {wanted[:16]}, which was switched on",
                found=f"{what} {found[:16]}",
                run=f"cog switch --corpus {active.corpus}",
                about=active.corpus,
            )
    return manifest


def _get_example(paths: ProjectPaths) -> str:
    # a corpus that is built, so that the command can be pasted
    built = (name for name in iter_corpus_ids(paths) if paths.corpus(name).manifest.is_file())
    return next(built, "ID")
