"""What a datastore says of itself: a folder goes in, its checked manifest comes out.

Those of several corpora are joined to one, as the indexes of a union are.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cog.corpus.documents import find_documents_digest
from cog.errors import IndexMismatchError, IndexNotBuiltError
from cog.index.versions.unions import JOIN, split_union
from cog.paths import ProjectPaths
from cog.reading import FieldError, Natural, Text, read_record

KEYS_FILE = "keys.f16"
TOKENS_FILE = "tokens.i32"
MANIFEST_FILE = "manifest.json"
FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class DatastoreManifest:
    """What a datastore says of itself."""

    format_version: int
    corpus: Text
    digest: Text  # sha256 over keys and tokens in order
    documents_digest: Text
    model: Text
    num_entries: Natural
    dim: Natural
    settings: dict[str, object]
    search: dict[str, object]  # its kind, and its recall against exact search
    seconds: dict[str, float]

    def __post_init__(self) -> None:
        for name in ("kind", "recall", "recall_at"):
            if name not in self.search:
                raise FieldError("search", name, wanted="is missing")


def load_datastore_manifest(
    paths: ProjectPaths, corpus_id: str, *, model: str
) -> DatastoreManifest:
    """Read the manifest of a corpus's datastore, held against its documents and a model.

    Raises ``IndexNotBuiltError`` if there is none, ``IndexMismatchError`` if it is damaged, or of
    another model or, where the corpus is prepared, other documents.
    """
    folder = paths.corpus(corpus_id).datastore
    run = f"cog paper datastore build {corpus_id}"
    try:
        content = json.loads((folder / MANIFEST_FILE).read_bytes())
    except FileNotFoundError:
        raise IndexNotBuiltError(
            f"corpus {corpus_id} must have a datastore for kNN-LM",
            found=f"no {folder.name}/{MANIFEST_FILE}",
            run=run,
            about=corpus_id,
        ) from None
    except (ValueError, OSError) as error:
        raise mismatch(corpus_id, "a readable manifest", str(error)) from error
    try:
        manifest = read_record(DatastoreManifest, content, error=IndexMismatchError)
    except IndexMismatchError as error:
        raise mismatch(corpus_id, "a complete manifest", str(error)) from error
    checks = [
        (FORMAT_VERSION, manifest.format_version, "format version"),
        (corpus_id, manifest.corpus, "corpus"),
        (model, manifest.model, "model"),
        (find_documents_digest(paths.corpus(corpus_id)), manifest.documents_digest, "documents"),
    ]
    for wanted, found, what in checks:
        if wanted is not None and wanted != found:
            raise mismatch(corpus_id, f"one of {what} {wanted!s:.16}", f"{found!s:.16}")
    num_entries = manifest.num_entries
    sizes = {KEYS_FILE: num_entries * manifest.dim * 2, TOKENS_FILE: num_entries * 4}
    for name, wanted_size in sizes.items():
        size = (folder / name).stat().st_size if (folder / name).is_file() else 0
        if size != wanted_size:
            wanted = f"one of {num_entries} entries"
            raise mismatch(corpus_id, wanted, f"{size} bytes of {name} instead of {wanted_size}")
    return manifest


def load_manifests(
    paths: ProjectPaths, corpus_id: str, *, model: str
) -> tuple[DatastoreManifest, ...]:
    """Read the manifests of the datastores that are searched as one."""
    parts = split_union(corpus_id)
    return tuple(load_datastore_manifest(paths, part, model=model) for part in parts)


def join_manifests(manifests: Sequence[DatastoreManifest]) -> DatastoreManifest:
    """What datastores that are searched as one hold together; the rest is of the first."""
    return replace(
        manifests[0],
        corpus=JOIN.join(each.corpus for each in manifests),
        digest=JOIN.join(each.digest for each in manifests),
        documents_digest=JOIN.join(each.documents_digest for each in manifests),
        num_entries=sum(each.num_entries for each in manifests),
    )


def mismatch(corpus_id: str, wanted: str, found: str) -> IndexMismatchError:
    """The error that refuses a datastore, which says what it must be and what it is."""
    return IndexMismatchError(
        f"the datastore of {corpus_id} must be {wanted}",
        found=found,
        run=f"cog paper datastore build {corpus_id}",
        about=corpus_id,
    )
