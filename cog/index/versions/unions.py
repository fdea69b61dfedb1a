"""Unions: ids such as ``a+b`` go in, their parts and what these state come out.

A union is no corpus of its own: nothing of it is stored, its parts are searched as one. Its digest
is the digests of its parts, joined. No torch, no store.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from cog.cards import check_corpus_id
from cog.errors import IndexMismatchError, RegistryError
from cog.index.records import Manifest
from cog.index.versions.manifest import check_index
from cog.paths import CorpusPaths, ProjectPaths
from cog.records import Active
from cog.registry import load_card

JOIN = "+"

DigestOf = Callable[[CorpusPaths], str | None]


def split_union(corpus_id: str) -> tuple[str, ...]:
    """The corpora that an id names, in its order; one that is named twice is refused."""
    parts = tuple(check_corpus_id(part) for part in corpus_id.split(JOIN))
    repeated = [part for part, count in Counter(parts).items() if count > 1]
    if repeated:
        raise RegistryError(
            "a union must name each corpus once",
            found=f"{repeated[0]} more than once in {corpus_id}",
            run=f"name it once: {JOIN.join(dict.fromkeys(parts))}",
        )
    return parts


def split_active(active: Active) -> dict[str, str]:
    """The digest of the index that is switched on, by corpus."""
    parts, digests = split_union(active.corpus), active.index.split(JOIN)
    if len(parts) != len(digests):
        raise RegistryError(
            f"{active.corpus} needs one index for each of its {len(parts)} corpora",
            found=f"{len(digests)} in registry/active.yaml",
            run=f"cog switch --corpus {active.corpus}",
        )
    return dict(zip(parts, digests, strict=True))


def check_cards(paths: ProjectPaths, corpus_id: str) -> tuple[str, ...]:
    """The corpora that an id names, in its order, each of which must have a card."""
    return tuple(load_card(paths, part).id for part in split_union(corpus_id))


def check_indexes(
    places: Iterable[CorpusPaths],
    *,
    model_fingerprint: str | None,
    documents_digest_of: DigestOf | None = None,
) -> list[Manifest]:
    """Check quickly that indexes can be used, as one if they are several."""
    manifests = [
        check_index(
            place,
            model_fingerprint=model_fingerprint,
            documents_digest=documents_digest_of(place) if documents_digest_of else None,
        )
        for place in places
    ]
    check_fit(manifests)
    return manifests


def check_fit(manifests: Sequence[Manifest]) -> None:
    """Refuse indexes that differ in model or in how vectors are stored: no search is for both."""
    first = manifests[0]
    for other in manifests[1:]:
        for what, wanted, found in (
            ("model", first.model[:16], other.model[:16]),
            ("vectors", first.vectors.dtype, other.vectors.dtype),
            ("codes of vectors", first.vectors.codes, other.vectors.codes),
            ("width of vectors", str(first.vectors.dim), str(other.vectors.dim)),
            ("width of chunk vectors", str(first.search.dim), str(other.search.dim)),
        ):
            if wanted != found:
                raise IndexMismatchError(
                    f"indexes of a union must have the same {what}",
                    found=f"{wanted} ({first.corpus}) and {found} ({other.corpus})",
                    run=f"cog index build {other.corpus} --force",
                )


def shorten_digest(digest: str, num_digits: int) -> str:
    """The first digits of a digest, of each part for a union."""
    return JOIN.join(part[:num_digits] for part in digest.split(JOIN))
