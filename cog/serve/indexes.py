"""Open indexes: a corpus and a version go in, a generator on it comes out, opened once.

What was used least recently is closed when more than a few are open, never while a text is being
written from it.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from cog.corpus.documents import find_documents_digest
from cog.decoding.generator import CopyGenerator
from cog.decoding.licences import CopyRule
from cog.decoding.session import find_allowed_chunks
from cog.errors import IndexMismatchError
from cog.index.read.reader import PhraseIndex, open_index
from cog.index.versions.activation import choose_corpus
from cog.index.versions.folders import iter_kept
from cog.index.versions.manifest import load_manifest
from cog.index.versions.unions import JOIN, check_indexes, split_active, split_union
from cog.model.load import CogModel
from cog.paths import ProjectPaths

MAX_GENERATORS = 8  # on an index, each with a mask over its chunks

IsUsing = Callable[[CopyGenerator], bool]


@dataclass(frozen=True, slots=True)
class Version:
    """A version of what can be copied from."""

    corpus: str  # corpus id, or several joined with `+`
    index: str  # digest of the index, of each part of a union

    @property
    def digests(self) -> dict[str, str]:
        """Digests by corpus id."""
        return dict(zip(self.corpus.split(JOIN), self.index.split(JOIN), strict=True))


@dataclass(slots=True)
class _Entry:
    # an index that is open, or about to be; the lock is held while it is opened
    lock: threading.Lock = field(default_factory=threading.Lock)
    index: PhraseIndex | None = None
    generators: dict[tuple[CopyRule, type[CopyGenerator]], CopyGenerator] = field(
        default_factory=dict
    )
    num_users: int = 0


class OpenIndexes:
    """The indexes that are open; every method may be called from any thread.

    ``max_open`` of them stay open while nobody uses them; ``is_using`` tells whether a text is
    still being written with a generator.
    """

    def __init__(
        self, paths: ProjectPaths, model: CogModel, *, max_open: int, is_using: IsUsing
    ) -> None:
        self._paths = paths
        self._model = model
        self._max_open = max_open
        self._is_using = is_using
        self._lock = threading.Lock()
        self._entries: OrderedDict[Version, _Entry] = OrderedDict()

    @property
    def num_open(self) -> int:
        """Number of indexes that are open."""
        with self._lock:
            return sum(entry.index is not None for entry in self._entries.values())

    def resolve(self, corpus_id: str | None, digest: str | None = None) -> Version:
        """Say which version is meant, after quick checks.

        Without a corpus what is active, at the version that was switched on. The digest is one of
        this machine, or its beginning, of each part of a union; without one it is the index in
        place.
        """
        chosen, active = choose_corpus(self._paths, corpus_id)
        if digest:
            version = self._find(chosen, digest)
        elif active is not None:
            if active.model != self._model.fingerprint:
                raise IndexMismatchError(
                    f"what is switched on ({active.corpus}) must be of the model that is served, "
                    f"{self._model.fingerprint[:16]}",
                    found=f"model {active.model[:16]}",
                    run="start cog serve again",
                    about=active.corpus,
                )
            split_active(active)
            version = Version(active.corpus, active.index)
        else:
            manifests = check_indexes(
                map(self._paths.corpus, split_union(chosen)),
                model_fingerprint=self._model.fingerprint,
                documents_digest_of=find_documents_digest,
            )
            version = Version(chosen, JOIN.join(each.digest for each in manifests))
        return version

    def open(
        self, version: Version, rule: CopyRule, *, make: type[CopyGenerator] = CopyGenerator
    ) -> CopyGenerator:
        """Give the generator on a version, which stays open until it is released."""
        with self._lock:
            entry = self._entries.setdefault(version, _Entry())
            self._entries.move_to_end(version)
            entry.num_users += 1
        try:
            with entry.lock:
                if entry.index is None:
                    entry.index = open_index(
                        *map(self._paths.corpus, version.digests),
                        model_fingerprint=self._model.fingerprint,
                        digests=version.digests,
                    )
                if (rule, make) not in entry.generators:
                    while len(entry.generators) >= MAX_GENERATORS:  # tickets keep theirs alive
                        del entry.generators[next(iter(entry.generators))]
                    allowed = find_allowed_chunks(entry.index, rule, corpus_id=version.corpus)
                    entry.generators[rule, make] = make(
                        self._model, entry.index, allowed_chunks=allowed
                    )
                return entry.generators[rule, make]
        except BaseException:
            self.release(version)
            raise

    def release(self, version: Version) -> None:
        """Say that one user of a version is done with it."""
        with self._lock:
            self._entries[version].num_users -= 1
        self.prune()

    def prune(self) -> None:
        """Close what was used least recently, beyond what may stay open."""
        closed = []
        with self._lock:
            num_left = len(self._entries) - self._max_open
            for version, entry in list(self._entries.items()):
                is_used = entry.num_users or any(map(self._is_using, entry.generators.values()))
                if not is_used and (num_left > 0 or entry.index is None):
                    closed.append(self._entries.pop(version))
                    num_left -= 1
        for entry in closed:
            if entry.index is not None:
                entry.index.close()

    def close(self) -> None:
        """Close everything; nobody may use it any more."""
        with self._lock:
            entries = list(self._entries.values())
            self._entries.clear()
        for entry in entries:
            if entry.index is not None:
                entry.index.close()

    def _find(self, corpus_id: str, digest: str) -> Version:
        parts, names = split_union(corpus_id), digest.split(JOIN)
        if len(parts) != len(names):
            raise IndexMismatchError(
                f"index must name one version for each of {', '.join(parts)}, joined with {JOIN}",
                found=digest,
                about=corpus_id,
            )
        found = dict(zip(parts, names, strict=True))
        digests = {part: self._find_part(part, name) for part, name in found.items()}
        return Version(corpus_id, JOIN.join(digests.values()))

    def _find_part(self, corpus_id: str, name: str) -> str:
        place = self._paths.corpus(corpus_id)
        manifests = [load_manifest(place), *(manifest for _, manifest in iter_kept(place))]
        found: Mapping[str, str] = {
            each.digest: each.model for each in manifests if each.digest.startswith(name.lower())
        }
        if len(found) != 1:
            known = ", ".join(dict.fromkeys(each.digest[:16] for each in manifests))
            raise IndexMismatchError(
                f"corpus {corpus_id} needs one index {name[:64]!r} on this machine",
                found=known,
                run=f"cog corpus versions {corpus_id}",
                about=corpus_id,
            )
        ((digest, model),) = found.items()
        if model != self._model.fingerprint:
            raise IndexMismatchError(
                f"index {digest[:16]} of {corpus_id} must be of the model that is served, "
                f"{self._model.fingerprint[:16]}",
                found=f"model {model[:16]}",
                run=f"cog index build {corpus_id}",
                about=corpus_id,
            )
        return digest
