"""manifest.json: what an index states is written, read and checked; no torch, no store."""

import json
import os
import re
from dataclasses import asdict
from pathlib import Path

from cog.atomic import write_text_atomically
from cog.cards import is_index_uri
from cog.corpus.next_step import name_build
from cog.errors import CorpusNotFoundError, IndexingError, IndexMismatchError, IndexNotBuiltError
from cog.index.records import FLAT, FORMAT_VERSION, LISTS, Manifest
from cog.paths import CorpusPaths, ProjectPaths, is_below
from cog.reading import read_record
from cog.registry import load_card

FOLDER_NAME = re.compile(r"[0-9a-f]{16}(-[0-9]+)?")
DIGEST = re.compile(r"[0-9a-f]{64}")


def save_manifest(path: Path, manifest: Manifest) -> None:
    """Put a manifest in place atomically: from then on the index it states is served."""
    text = json.dumps(asdict(manifest), indent=2, ensure_ascii=False)
    write_text_atomically(path, text + "\n")


def load_manifest(corpus_paths: CorpusPaths, *, oldest: int = FORMAT_VERSION) -> Manifest:
    """Read a corpus's manifest.

    One of an older format than that of today can be opened for nothing but its vectors. Raises
    ``IndexNotBuiltError`` if there is none, ``IndexMismatchError`` if it is damaged or of a format
    that is not taken.
    """
    corpus_id = corpus_paths.root.name
    try:
        content = json.loads(corpus_paths.manifest.read_bytes())
    except FileNotFoundError:
        raise IndexNotBuiltError(
            f"corpus {corpus_id} must have an index",
            found=f"no {corpus_paths.manifest.name}",
            run=name_build(corpus_paths),
        ) from None
    except (ValueError, OSError) as error:
        raise mismatch(corpus_id, "a readable manifest", str(error), force=True) from error
    version = content.get("format_version") if isinstance(content, dict) else None
    if type(version) is not int or not oldest <= version <= FORMAT_VERSION:
        is_older = type(version) is int and version < FORMAT_VERSION
        wanted = f"an index of format {FORMAT_VERSION}"
        raise mismatch(corpus_id, wanted, f"format {version!r}", force=not is_older)
    try:
        manifest = read_record(Manifest, content, error=IndexingError)
    except IndexingError as error:
        raise mismatch(corpus_id, "a complete manifest", str(error), force=True) from error
    if not FOLDER_NAME.fullmatch(manifest.folder):
        raise mismatch(corpus_id, "a folder named by a digest", manifest.folder, force=True)
    if not DIGEST.fullmatch(manifest.digest):
        raise mismatch(corpus_id, "a digest of 64 hex digits", repr(manifest.digest), force=True)
    outside = [name for name in manifest.files if not is_below(name)]
    if outside:
        raise mismatch(corpus_id, "files below its folder", repr(outside[0]), force=True)
    return manifest


def find_manifest(corpus_paths: CorpusPaths, *, oldest: int = FORMAT_VERSION) -> Manifest | None:
    """Read a corpus's manifest; None if there is none that can be read."""
    try:
        return load_manifest(corpus_paths, oldest=oldest)
    except IndexingError:
        return None


def get_index_uri(corpus_paths: CorpusPaths) -> str:
    """Where the index of a corpus lies if it is not on this machine; empty if nowhere.

    The variable ``COG_INDEX_URI`` goes before ``index.uri`` of the card: it is set for one machine
    or one command, the card holds for everyone. It is refused if it is no ``s3://`` address.
    """
    uri = os.environ.get("COG_INDEX_URI", "").rstrip("/")
    if uri and not is_index_uri(uri):
        raise IndexingError(
            "COG_INDEX_URI must name a bucket, and a folder in it",
            found=uri,
            run="export COG_INDEX_URI=s3://BUCKET/FOLDER",
        )
    if uri or corpus_paths.project is None:
        return uri
    try:
        card = load_card(ProjectPaths(corpus_paths.project), corpus_paths.root.name)
    except CorpusNotFoundError:
        return ""
    return card.index.uri if card.index is not None else ""


def check_index(
    corpus_paths: CorpusPaths,
    *,
    model_fingerprint: str | None = None,
    documents_digest: str | None = None,
) -> Manifest:
    """Check quickly that a corpus's index is there, whole by size, and of a model and documents."""
    manifest = load_manifest(corpus_paths)
    corpus_id = corpus_paths.root.name
    for stated, there, what in (
        (corpus_id, manifest.corpus, "corpus"),
        (model_fingerprint, manifest.model, "model"),
        (documents_digest, manifest.documents_digest, "documents"),
    ):
        if stated is not None and stated != there:
            needed = f"an index of {what} {stated[:16]}"
            raise mismatch(corpus_id, needed, f"an index of {what} {there[:16]}")
    if manifest.search.kind not in (FLAT, LISTS):
        raise mismatch(corpus_id, f"search by {FLAT} or {LISTS}", manifest.search.kind)
    folder = corpus_paths.index / manifest.folder
    if not folder.is_dir():
        if get_index_uri(corpus_paths):
            return manifest  # its tables are read where they lie, which opening them checks
        raise mismatch(corpus_id, f"the folder index/{folder.name}", "no such folder")
    for name, entry in manifest.files.items():
        try:
            found = f"{(folder / name).stat().st_size} bytes"
        except OSError:
            found = "no such file"
        wanted = f"{entry.size_bytes} bytes"
        if found != wanted:
            raise mismatch(corpus_id, f"{wanted} of the index file {name}", found, force=True)
    return manifest


def mismatch(corpus_id: str, wanted: str, found: str, *, force: bool = False) -> IndexMismatchError:
    """The error that refuses an index; ``force`` where only a forced build mends it."""
    return IndexMismatchError(
        f"corpus {corpus_id} needs {wanted}",
        found=found,
        run=f"cog index build {corpus_id}{' --force' if force else ''}",
    )
