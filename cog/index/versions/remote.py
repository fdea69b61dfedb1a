"""Indexes on an object store: a corpus id goes in, its files go there, or come back.

Below the address lie ``<corpus>/manifest.json`` and ``<corpus>/<version folder>/``, as below
``corpora/``. The manifest is written last: it is what puts a version in place there, too.
"""

import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial, wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from cog.atomic import open_staging, replacing
from cog.errors import IndexingError
from cog.hashing import hash_file
from cog.index.records import Manifest
from cog.index.versions.activation import get_kept
from cog.index.versions.folders import (
    find_whole,
    hold_build_lock,
    place_version,
    remove_version,
    serve_version,
)
from cog.index.versions.manifest import (
    check_index,
    find_manifest,
    get_index_uri,
    load_manifest,
    mismatch,
)
from cog.paths import CorpusPaths, ProjectPaths, get_cache_folder
from cog.progress import Progress

NUM_TRIES = 4
FIRST_WAIT_SECONDS = 0.2
TIMEOUT_SECONDS = 20
DATA_FOLDER = "data"  # of a Lance table; the names of the files in it are random
VERSIONS_FOLDER = "_versions"  # what says of a table which files it has
INDICES_FOLDER = "_indices"  # likewise, each in a folder of a random name
# what the two clients of S3 say, whose exceptions have no kinds
REFUSED = re.compile(
    r"\b40[13] [A-Z]\w+|ACCESS_DENIED|INVALID_ACCESS_KEY_ID|SIGNATURE_DOES_NOT_MATCH"
)
MISSING = re.compile(r"NoSuchBucket|NoSuchKey|404 Not Found|[Nn]ot found")
P = ParamSpec("P")
Result = TypeVar("Result")


def require_uri(corpus_paths: CorpusPaths) -> str:
    """The address of the index of a corpus, which must be set."""
    uri = get_index_uri(corpus_paths)
    if not uri:
        corpus_id = corpus_paths.root.name
        raise IndexingError(
            f"corpus {corpus_id} needs the address of an object store for its index",
            found="neither index.uri in its card nor COG_INDEX_URI is set",
            run="export COG_INDEX_URI=s3://BUCKET/FOLDER, or set index.uri in the card",
        )
    return uri


def get_storage_options() -> dict[str, str]:
    """How LanceDB reaches the store, from the variables that every S3 client reads."""
    options = {
        "aws_region": _get_region(),
        "connect_timeout": "5s",
        "timeout": f"{TIMEOUT_SECONDS}s",
        "client_max_retries": str(NUM_TRIES),
        "client_retry_timeout": str(TIMEOUT_SECONDS),
    }
    if endpoint := _get_endpoint():
        options["aws_endpoint"] = endpoint
        options["allow_http"] = str(endpoint.startswith("http://")).lower()
    for name in ("access_key_id", "secret_access_key", "session_token"):
        if value := os.environ.get(f"AWS_{name.upper()}"):
            options[f"aws_{name}"] = value
    return options


def push_index(paths: ProjectPaths, corpus_id: str, *, progress: Progress) -> Manifest:
    """Copy the index of a corpus to the object store, unless the store has it."""
    corpus = paths.corpus(corpus_id)
    store = _ObjectStore(require_uri(corpus), corpus_id, progress)
    manifest = check_index(corpus)
    folder = corpus.index / manifest.folder
    if not folder.is_dir():
        raise IndexingError(
            f"corpus {corpus_id} must have its index on this machine to be pushed",
            found=f"only {corpus.manifest.name}",
            run=f"cog index pull {corpus_id} --tables",
        )
    if _has_version(store, corpus, manifest.digest):
        return manifest
    for name, entry in manifest.files.items():
        # files of data have names of their own; the others may be there from an equal build
        is_named_alone = not {DATA_FOLDER, INDICES_FOLDER}.isdisjoint(Path(name).parts)
        store.put(f"{manifest.folder}/{name}", folder / name, can_stay=is_named_alone)
        progress.advance(entry.size_bytes)
    store.remove_others(manifest.folder, keep=manifest.files)
    store.put(corpus.manifest.name, corpus.manifest, can_stay=False)
    return manifest


def _has_version(store: "_ObjectStore", corpus: CorpusPaths, digest: str) -> bool:
    # of equal builds, whose files have other names, the store keeps the first
    if store.get_size(corpus.manifest.name) is None:
        return False
    with tempfile.TemporaryDirectory() as folder:
        place = CorpusPaths(Path(folder) / corpus.root.name)
        store.get(corpus.manifest.name, place.manifest)
        stated = find_manifest(place)
    return (
        stated is not None
        and stated.digest == digest
        and all(
            store.get_size(f"{stated.folder}/{name}") == entry.size_bytes
            for name, entry in stated.files.items()
        )
    )


def pull_index(
    paths: ProjectPaths, corpus_id: str, *, has_tables: bool, progress: Progress
) -> Manifest:
    """Take the manifest of a corpus from the store, and its tables, or they are read there."""
    corpus = paths.corpus(corpus_id)
    store = _ObjectStore(require_uri(corpus), corpus_id, progress)
    # nothing is held while it is downloaded: its hidden folder is this process's own
    with open_staging(corpus.index / "pull") as staging:
        place = CorpusPaths(staging / corpus_id)
        store.get(corpus.manifest.name, place.manifest)
        manifest = load_manifest(place)
        if manifest.corpus != corpus_id:  # it would be in the place of the corpus's own, and no use
            wanted, found = "its own index in the store", f"the index of {manifest.corpus!r}"
            raise mismatch(corpus_id, wanted, found)
        own = find_whole(corpus, manifest.digest)
        if own is not None:  # an equal build has files of other names
            return own
        folder = place.root / manifest.folder
        for name, entry in manifest.files.items() if has_tables else ():
            store.get(f"{manifest.folder}/{name}", folder / name, sha256=entry.sha256)
            progress.advance(entry.size_bytes)
        with hold_build_lock(corpus, say=progress.say):
            own = find_whole(corpus, manifest.digest)
            if own is not None:  # another process built or pulled the same meanwhile
                return own
            if has_tables:
                target = place_version(folder, manifest.digest, into=corpus.index)
                manifest = replace(manifest, folder=target.name)
            else:  # what is not whole here would be read before the store
                remove_version(corpus, corpus.index / manifest.folder)
            serve_version(corpus, manifest, partial(get_kept, paths, corpus_id), say=progress.say)
            return manifest


def fetch_files(manifest: Manifest, uri: str, start: str) -> Path:
    """Bring files that are no tables to the cache, by how their names begin; they are mapped."""
    folder = get_cache_folder() / "indexes" / manifest.digest
    store = _ObjectStore(uri, manifest.corpus, None)
    for name, entry in manifest.files.items():
        path = folder / name
        if name.startswith(start) and not path.is_file():
            store.get(f"{manifest.folder}/{name}", path, sha256=entry.sha256)
    return folder


def _trying(
    call: "Callable[Concatenate[_ObjectStore, str, P], Result]",
) -> "Callable[Concatenate[_ObjectStore, str, P], Result]":
    # what is done with an object is tried again when the connection breaks
    @wraps(call)
    def tried(store: "_ObjectStore", name: str, /, *args: P.args, **settings: P.kwargs) -> Result:
        for number in range(NUM_TRIES):
            try:
                return call(store, name, *args, **settings)
            except FileNotFoundError:
                raise IndexingError(
                    f"{store.uri} must hold {store.corpus_id}/{name}",
                    found="no such object",
                    run=f"cog index push {store.corpus_id}",
                ) from None
            except OSError as error:
                if number + 1 == NUM_TRIES or REFUSED.search(str(error)):
                    raise unreachable(store.corpus_id, store.uri, error) from error
                if store.progress is not None:
                    store.progress.say(f"{store.uri}: {name} broke off, trying again")
                time.sleep(FIRST_WAIT_SECONDS * 2**number)
        raise AssertionError("unreachable")

    return tried


class _ObjectStore:
    # one corpus below the address
    def __init__(self, uri: str, corpus_id: str, progress: Progress | None) -> None:
        self.uri = uri
        self.corpus_id = corpus_id
        self.progress = progress
        self._prefix = f"{uri.removeprefix('s3://')}/{corpus_id}"
        self._files = _connect()

    @_trying
    def put(self, name: str, source: Path, *, can_stay: bool) -> None:
        size, target = source.stat().st_size, f"{self._prefix}/{name}"
        if can_stay and self._files.get_file_info(target).size == size:
            return
        with source.open("rb") as file, self._files.open_output_stream(target) as stream:
            shutil.copyfileobj(file, stream, 1 << 20)
        found = self._files.get_file_info(target).size
        if found != size:
            raise OSError(f"{found or 0} of {size} bytes arrived")

    @_trying
    def remove_others(self, folder: str, *, keep: Collection[str]) -> None:
        # what an equal build says of its tables; their data may still be read by others
        from pyarrow.fs import FileSelector, FileType

        base = f"{self._prefix}/{folder}/"
        selector = FileSelector(base, recursive=True, allow_not_found=True)
        for found in self._files.get_file_info(selector):
            name = found.path.removeprefix(base)
            is_stated = name in keep or VERSIONS_FOLDER not in Path(name).parts
            if found.type == FileType.File and not is_stated:
                self._files.delete_file(found.path)

    @_trying
    def get_size(self, name: str) -> int | None:
        size = self._files.get_file_info(f"{self._prefix}/{name}").size
        return int(size) if size is not None else None

    @_trying
    def get(self, name: str, target: Path, *, sha256: str | None = None) -> None:
        source = f"{self._prefix}/{name}"
        size = self._files.get_file_info(source).size
        with replacing(target) as part:
            with self._files.open_input_stream(source) as stream, part.open("wb") as file:
                shutil.copyfileobj(stream, file, 1 << 20)
            found = part.stat().st_size  # an answer that breaks off just ends, and may be empty
            if found != size or not found:
                raise OSError(f"{found} of {size or 'unknown'} bytes")
            if sha256 is not None and hash_file(part) != sha256:
                raise OSError("other bytes than the manifest states")


def unreachable(corpus_id: str, uri: str, error: BaseException) -> IndexingError:
    """The error of a store that does not answer, refuses, or lacks what was there."""
    detail = str(error).splitlines()[0] if str(error) else type(error).__name__
    if refusal := REFUSED.search(str(error)):
        return IndexingError(
            f"{uri} must be open to whoever uses the index of {corpus_id}",
            found=f"the store refuses ({refusal[0]})",
            run="check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and what their owner may do",
        )
    if missing := MISSING.search(str(error)):
        return IndexingError(
            f"{uri} must hold all of the index of {corpus_id}",
            found=f"{missing[0]} ({detail.partition(', /')[0][:120]})",
            run=f"cog index push {corpus_id}",
        )
    return IndexingError(
        f"the index of {corpus_id} must be within reach at {uri}",
        found=f"{detail[:200]} ({NUM_TRIES} tries)",
        run="check the network, AWS_ENDPOINT_URL and the AWS_ credentials, then run it again",
    )


def _connect() -> Any:  # noqa: ANN401
    from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem

    endpoint = _get_endpoint()
    scheme, _, host = endpoint.rpartition("://")
    return S3FileSystem(
        region=_get_region(),
        endpoint_override=host or None,
        scheme=scheme or "https",
        connect_timeout=5,
        request_timeout=TIMEOUT_SECONDS,
        retry_strategy=AwsStandardS3RetryStrategy(max_attempts=2),
    )


def _get_endpoint() -> str:
    names = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
    return next((os.environ[name] for name in names if os.environ.get(name)), "").rstrip("/")


def _get_region() -> str:
    names = ("AWS_REGION", "AWS_DEFAULT_REGION")
    return next((os.environ[name] for name in names if os.environ.get(name)), "us-east-1")
