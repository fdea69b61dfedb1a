"""What is switched on: a corpus id goes in, its index is checked quickly and made the active one.

``params.yaml`` says which model builds; what is switched on keeps the one it was switched on with.
Neither torch nor a store is loaded: a switch takes well under a second as a whole process.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cog.corpus.next_step import name_build
from cog.dvc_lock import load_outs
from cog.errors import (
    CheckpointError,
    CogError,
    IndexMismatchError,
    NothingActiveError,
    RegistryError,
)
from cog.index.records import Manifest
from cog.index.versions.folders import Keep, find_version, prune_versions
from cog.index.versions.manifest import check_index, load_manifest
from cog.index.versions.resolve import hold_versions
from cog.index.versions.unions import JOIN, check_cards, check_indexes, split_active
from cog.locks import Say
from cog.model.fingerprint import fingerprint_model
from cog.params import Params, load_params
from cog.paths import CorpusPaths, ProjectPaths
from cog.pipeline_file import load_pipeline
from cog.records import Active
from cog.registry import (
    iter_corpus_ids,
    load_active,
    load_previous,
    load_switches,
    rollback_active,
    switch_active,
)

MAX_NAMED = 3  # folders that a message names


@dataclass(frozen=True, slots=True)
class Change:
    """What a switch or a rollback changed."""

    before: Active | None  # what was active; None if nothing was
    after: Active  # what is active now

    @property
    def is_change(self) -> bool:
        """Whether anything differs but the time."""
        return self.before is None or self.before.identity != self.after.identity


@dataclass(frozen=True, slots=True)
class Status:
    """What is active, and whether it can be used."""

    active: Active | None  # what is active; None if nothing is, or the record cannot be read
    counts: dict[str, int]  # its documents, chunks and words; empty if they cannot be used
    problem: str  # what is wrong; empty if nothing is
    run: str  # the command to run next; empty if none is needed

    @property
    def is_broken(self) -> bool:
        """Whether something is active that cannot be used."""
        return bool(self.problem)

    def to_json(self) -> dict[str, Any]:
        """The status as the command line writes it."""
        return {
            "active": asdict(self.active) if self.active else None,
            "intact": None if self.active is None and not self.problem else not self.problem,
            **dict.fromkeys(("documents", "chunks", "words")),
            **self.counts,
            "problem": self.problem or None,
            "next": self.run or None,
        }


def switch_corpus(
    paths: ProjectPaths, corpus_id: str, *, index: str | None = None, say: Say | None = None
) -> Change:
    """Make a corpus and its index the active ones, atomically, after quick checks.

    The index is named by the digest of a version, the beginning of one, or a git revision; for a
    union one per part, joined with ``+``. A version that is not here is brought back from DVC's
    cache or remote, and one of another model is switched on with that. Unnamed, the one in place is
    taken, which must be of the model of params.yaml.
    """
    parts = check_cards(paths, corpus_id)
    command = f"cog switch --corpus {corpus_id}" + ("" if index is None else f" --index {index}")
    with hold_versions(paths, _name_versions(parts, index), say=say) as places:
        model_folder = _choose_model(paths, corpus_id, places if index is not None else [])
        manifests = check_indexes(
            places, model_fingerprint=fingerprint_model(paths.model(model_folder))
        )
        digest = JOIN.join(each.digest for each in manifests)
        switched_at = datetime.now(UTC).isoformat(timespec="seconds")
        after = Active(corpus_id, digest, manifests[0].model, switched_at, model_folder)
        before = switch_active(paths, after, command=command)
        _prune(paths, parts)
    change = Change(before, after)
    return change if change.is_change or before is None else Change(before, before)


def rollback_corpus(paths: ProjectPaths, *, say: Say | None = None) -> Change:
    """Switch back to what was active before, after the same checks; its index is brought back."""
    target = next(iter(load_previous(paths)), None)
    digests = split_active(target) if target is not None else {}
    with hold_versions(paths, digests, say=say):
        if target is not None:
            _check_active(paths, target)
        before, after = rollback_active(paths, target, command="cog rollback")
        _prune(paths, list(digests))
    return Change(before, after)


def get_kept(paths: ProjectPaths, corpus_id: str) -> Keep | None:
    """Say which versions of a corpus stay when they are replaced.

    What is active, what a rollback goes back to, and ``index.keep_versions`` others; None if
    active.yaml cannot be read, so that all must stay.
    """
    num_last = load_params(paths.params).index.keep_versions
    try:
        active, previous = load_switches(paths)
        named = [split_active(each) for each in (active, *previous[:1]) if each is not None]
    except RegistryError:
        return None
    digests = frozenset(parts[corpus_id] for parts in named if corpus_id in parts)
    return Keep(digests, num_last)


def get_status(paths: ProjectPaths) -> Status:
    """Say what is active, and whether it is intact."""
    active = None
    try:
        active = load_active(paths)
        if active is None:
            return Status(None, {}, problem="", run=_name_first_switch(paths))
        counts = _count(_check_active(paths, active))
        return Status(active, counts, problem="", run=_find_newer(paths, active))
    except CogError as error:
        found = f" (found: {error.found})" if error.found else ""
        return Status(active, {}, problem=f"{error.wanted}{found}", run=error.run)


def choose_corpus(paths: ProjectPaths, corpus_id: str | None) -> tuple[str, Active | None]:
    """Say which corpus is meant: the one named, or what is active, which is given too then."""
    if corpus_id is not None:
        return JOIN.join(check_cards(paths, corpus_id)), None
    active = load_active(paths)
    if active is None:
        raise NothingActiveError(
            "a corpus must be switched on or named", found="none", run=_name_first_switch(paths)
        )
    check_cards(paths, active.corpus)
    return active.corpus, active


def get_active_model(paths: ProjectPaths, params: Params, active: Active) -> Path:
    """Find the folder that holds the model of what is active: the recorded, else any other."""
    names = [active.model_folder or params.model, params.model]
    return paths.model(find_model(paths, names, active.model, corpus_id=active.corpus))


def find_model(
    paths: ProjectPaths, names: Iterable[str], fingerprint: str, *, corpus_id: str
) -> str:
    """Find the folder whose model has a fingerprint: one that is named, else one in ``models/``."""
    found = {}
    others = [path.relative_to(paths.root).as_posix() for path in sorted(paths.models.glob("*/"))]
    for name in dict.fromkeys([*names, *others]):
        other = _describe(paths.model(name))
        if other == fingerprint:
            return name
        found[name] = other if " " in other else f"model {other[:16]}"
    first = next(iter(found))
    known = [f"{name}: {each}" for name, each in found.items()][:MAX_NAMED]
    raise IndexMismatchError(
        f"corpus {corpus_id} needs model {fingerprint[:16]}, as it was switched on or built with",
        found=", ".join(known),
        run=f"{_restore(paths, first)}, or cog switch --corpus {corpus_id}",
    )


def _choose_model(paths: ProjectPaths, corpus_id: str, places: Sequence[CorpusPaths]) -> str:
    # the folder of the model: that of params.yaml, but for versions that were asked for by name
    params = load_params(paths.params)
    if not places:
        return params.model
    wanted = load_manifest(places[0]).model
    active, previous = load_switches(paths)
    records = [each for each in (active, *previous) if each is not None and each.model == wanted]
    names = [params.model, *(each.model_folder for each in records if each.model_folder)]
    return find_model(paths, names, wanted, corpus_id=corpus_id)


def _count(manifests: Sequence[Manifest]) -> dict[str, int]:
    return {
        "documents": sum(each.documents.num_indexed for each in manifests),
        "chunks": sum(each.num_chunks for each in manifests),
        "words": sum(each.num_words for each in manifests),
    }


def _name_versions(parts: Sequence[str], index: str | None) -> dict[str, str | None]:
    if index is None:
        return dict.fromkeys(parts)
    names = index.split(JOIN) if len(parts) > 1 else [index]
    if len(names) != len(parts):
        raise IndexMismatchError(
            f"--index must name one index for each of {', '.join(parts)}, joined with {JOIN}",
            found=index,
            run=f"cog switch --corpus {JOIN.join(parts)}",
        )
    return dict(zip(parts, names, strict=True))


def _prune(paths: ProjectPaths, parts: Sequence[str]) -> None:
    for part in parts:
        prune_versions(paths.corpus(part), get_kept(paths, part))


def _check_active(paths: ProjectPaths, active: Active) -> list[Manifest]:
    places = []
    check_cards(paths, active.corpus)
    for part, digest in split_active(active).items():
        place = find_version(paths.corpus(part), digest)
        if place is None:
            check_index(paths.corpus(part))  # says what is wrong, where more than the version
            raise IndexMismatchError(
                f"corpus {part} needs index {digest[:16]}, which was switched on",
                found="no such version on this machine",
                run=f"cog switch --corpus {active.corpus}",
            )
        places.append(place)
    get_active_model(paths, load_params(paths.params), active)
    return check_indexes(places, model_fingerprint=active.model)


def _find_newer(paths: ProjectPaths, active: Active) -> str:
    # the command that switches to what was built since, if anything was
    try:
        parts = split_active(active)
        newest = [load_manifest(paths.corpus(part)).digest for part in parts]
    except CogError:
        return ""
    return "" if newest == list(parts.values()) else f"cog switch --corpus {active.corpus}"


def _name_first_switch(paths: ProjectPaths) -> str:
    # to a corpus that is built, else to the first that the pipeline builds
    built = (name for name in iter_corpus_ids(paths) if paths.corpus(name).manifest.is_file())
    if chosen := next(built, None):
        return f"cog switch --corpus {chosen}"
    chosen = next(iter([*load_pipeline(paths).corpora, *iter_corpus_ids(paths)]), None)
    if chosen is None:
        return "cog corpus add ID DIR_OR_FILE"
    return f"{name_build(paths.corpus(chosen))} && cog switch --corpus {chosen}"


def _describe(folder: Path) -> str:
    if not folder.is_dir():
        return "no such folder"
    try:
        return fingerprint_model(folder)
    except CheckpointError as error:
        return f"no model ({error.wanted}; {error.found})"


def _restore(paths: ProjectPaths, name: str) -> str:
    is_in_dvc = (paths.root / f"{name}.dvc").is_file() or name in load_outs(paths.dvc_lock)
    if is_in_dvc:
        return f"dvc checkout {name} at the git revision that had it"
    return f"git checkout REVISION -- {name} (git log -- {name} lists them)"
