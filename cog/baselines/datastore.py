"""The datastore of kNN-LM: documents go in, pairs of hidden state and next token lie on disk."""

import hashlib
import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from cog.atomic import replacing
from cog.baselines.manifest import (
    FORMAT_VERSION,
    KEYS_FILE,
    MANIFEST_FILE,
    TOKENS_FILE,
    DatastoreManifest,
)
from cog.baselines.neighbours import build_searcher
from cog.corpus.documents import DocumentStore
from cog.errors import IndexingError
from cog.locks import hold_lock
from cog.model.load import CogModel, load_model
from cog.params import DatastoreParams, Params
from cog.paths import BUILD, ProjectPaths
from cog.progress import Progress
from cog.records import Document

STATED = ("context_tokens", "overlap_tokens", "flat_threshold_rows")  # what another build needs
WINDOWS_PER_GROUP = 512  # windows sorted by length together; bounds the memory


@dataclass(frozen=True, slots=True)
class Window:
    """A run of a document's tokens that is encoded in one pass."""

    token_ids: list[int]  # the one before the first entry's included
    num_context: int  # first states that another window has already given


def iter_windows(
    token_ids: list[int], *, begin: list[int], settings: DatastoreParams
) -> Iterator[Window]:
    """Cut a document into windows, so that every token is the target of exactly one entry.

    The state at the last of the tokens ``begin`` predicts the first token; the last token of each
    window is only a target.
    """
    ids = begin + token_ids
    step = settings.context_tokens - settings.overlap_tokens
    first = 0
    while first == 0 or first + settings.overlap_tokens < len(ids) - 1:
        window = ids[first : first + settings.context_tokens + 1]
        num_context = settings.overlap_tokens if first else 0
        if len(window) - 1 > num_context:
            yield Window(window, num_context)
        first += step


def iter_entries(
    model: CogModel, documents: Iterable[Document], *, settings: DatastoreParams
) -> Iterator[tuple[NDArray[np.float16], NDArray[np.int32], int]]:
    """Encode documents (Khandelwal et al. 2020, section 2: the keys are last hidden states).

    Yields keys of *Shape:* ``(num_entries, dim)``, next tokens of *Shape:* ``(num_entries,)``, and
    the number of documents done.
    """
    encoder = model.prefix_encoder
    begin = [] if encoder.begin_token_id is None else [encoder.begin_token_id]
    group: list[Window] = []
    num_documents = 0
    for document in documents:
        ids: list[int] = model.splitter.encode(document.text).tolist()
        group += iter_windows(ids, begin=begin, settings=settings)
        num_documents += 1
        if len(group) >= WINDOWS_PER_GROUP:
            yield from _encode_group(model, group, num_documents, settings.batch_tokens)
            group, num_documents = [], 0
    yield from _encode_group(model, group, num_documents, settings.batch_tokens)


def _encode_group(
    model: CogModel, group: list[Window], num_documents: int, batch_tokens: int
) -> Iterator[tuple[NDArray[np.float16], NDArray[np.int32], int]]:
    falling = sorted(group, key=lambda window: -len(window.token_ids))
    first, num_told = 0, 0
    while first < len(falling):
        size = max(1, batch_tokens // len(falling[first].token_ids))
        batch = falling[first : first + size]
        first += size
        cache = model.prefix_encoder.new_cache(
            batch=len(batch), capacity=len(batch[0].token_ids) - 1
        )
        states = model.prefix_encoder.append(cache, [each.token_ids[:-1] for each in batch])
        lengths = [len(each.token_ids) - 1 for each in batch]
        is_entry = np.concatenate(
            [np.arange(n) >= each.num_context for n, each in zip(lengths, batch, strict=True)]
        )
        targets = np.concatenate([np.array(each.token_ids[1:], np.int32) for each in batch])
        keys = states[torch.from_numpy(is_entry).to(states.device)].to(torch.float16).cpu().numpy()
        if not np.isfinite(keys).all():
            raise IndexingError(
                "hidden states must be finite to be stored as float16",
                found="NaN or infinity",
                run="train or name another model in params.yaml",
            )
        done = min(first, len(falling)) * num_documents // len(falling)
        yield keys, targets[is_entry], done - num_told
        num_told = done


def build_corpus_datastore(
    paths: ProjectPaths, corpus_id: str, *, params: Params, progress: Progress, device: str
) -> DatastoreManifest:
    """Build the datastore of a prepared corpus; a killed build leaves the old one."""
    corpus_paths, settings = paths.corpus(corpus_id), params.datastore
    store = DocumentStore(corpus_paths.documents)
    model = load_model(paths.model(params.model), device=device)
    limit = model.prefix_encoder.max_positions
    if settings.context_tokens > limit:
        raise IndexingError(
            f"datastore.context_tokens must be at most {limit}, which {params.model} can read",
            found=str(settings.context_tokens),
            run="change params.yaml",
        )
    lock = corpus_paths.lock(f"datastore-{BUILD}")
    with (
        hold_lock(lock, work=f"builds {corpus_id}-datastore", say=progress.say),
        replacing(corpus_paths.datastore) as building,
    ):
        building.mkdir()
        began = time.perf_counter()
        written = _write_entries(building, store.iter_documents(), model, settings, progress)
        num_entries, dim, digest = written
        encoded = time.perf_counter()
        keys = load_keys(building, num_entries=num_entries, dim=dim)
        search = build_searcher(building, keys, settings=settings, progress=progress)
        manifest = DatastoreManifest(
            format_version=FORMAT_VERSION,
            corpus=corpus_id,
            digest=digest,
            documents_digest=store.load_report().digest,
            model=model.fingerprint,
            num_entries=num_entries,
            dim=dim,
            settings={name: getattr(settings, name) for name in STATED},
            search=search,
            seconds={
                "encode": round(encoded - began, 3),
                "search": round(time.perf_counter() - encoded, 3),
            },
        )
        text = json.dumps(asdict(manifest), indent=2) + "\n"
        (building / MANIFEST_FILE).write_text(text, encoding="utf-8")
    return manifest


def _write_entries(
    building: Path,
    documents: Iterable[Document],
    model: CogModel,
    settings: DatastoreParams,
    progress: Progress,
) -> tuple[int, int, str]:
    hashes = hashlib.sha256(), hashlib.sha256()
    num_entries, dim = 0, 0
    with (building / KEYS_FILE).open("wb") as keys, (building / TOKENS_FILE).open("wb") as tokens:
        for vectors, targets, num_done in iter_entries(model, documents, settings=settings):
            for file, digest, rows in ((keys, hashes[0], vectors), (tokens, hashes[1], targets)):
                content = np.ascontiguousarray(rows).tobytes()
                file.write(content)
                digest.update(content)
            num_entries += len(targets)
            dim = vectors.shape[1]
            progress.advance(num_done)
    joined = hashes[0].digest() + hashes[1].digest()
    return num_entries, dim, hashlib.sha256(joined).hexdigest()


def load_keys(folder: Path, *, num_entries: int, dim: int) -> NDArray[np.float16]:
    """Map the keys of a datastore into memory: ``(num_entries, dim)``."""
    return np.memmap(folder / KEYS_FILE, dtype=np.float16, mode="r", shape=(num_entries, dim))


def load_tokens(folder: Path, *, num_entries: int) -> NDArray[np.int32]:
    """Read the next tokens of a datastore: ``(num_entries,)``."""
    return np.fromfile(folder / TOKENS_FILE, dtype=np.int32, count=num_entries)
