"""Training examples: an index goes in, windows of its documents and their neighbours come out.

They are found once and kept in the cache folder: a step of training reads neither the index nor
the retriever.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cog.assets import convert_cached
from cog.baselines.retro.config import RetroConfig
from cog.baselines.retro.neighbours import NeighbourSource, read_chunk
from cog.errors import TrainingError
from cog.index.read.reader import PhraseIndex
from cog.model.load import CogModel
from cog.params import RetroParams
from cog.progress import Progress
from cog.training.sampler import split_documents

FORMAT_VERSION = 2  # of the files; part of their key
DOCUMENTS_PER_READ = 512
TEXTS_PER_PASS = 128


@dataclass(frozen=True, slots=True)
class RetroExamples:
    """Windows of documents with a neighbour for each of their chunks, as files hold them.

    Neighbours are never of the window's own document, nor of one that is held out.
    """

    folder: Path  # where the files lie; its name is their key
    token_ids: NDArray[np.int32]  # (num_tokens,) of all windows
    window_offsets: NDArray[np.int64]  # (num_windows + 1,) where each window begins
    documents: NDArray[np.int64]  # (num_windows,) the document of each
    held_out: NDArray[np.int64]  # (num_held_out,) windows of documents that are held out
    chunk_offsets: NDArray[np.int64]  # (num_windows + 1,) where the chunks of each window begin
    neighbours: NDArray[np.int64]  # (num_chunks, num_neighbours) of each chunk; -1 for none
    neighbour_ids: NDArray[np.int64]  # (num_different,) all of them, ascending
    neighbour_tokens: NDArray[np.int32]  # (num_read,) their tokens, continuations included
    neighbour_offsets: NDArray[np.int64]  # (num_different + 1,) where those of each begin

    def list_learnable(self) -> NDArray[np.int64]:
        """Windows to train on, ascending: not held out, and with a neighbour to learn from."""
        has_some = (self.neighbours >= 0).any(axis=1)  # (num_chunks,)
        counts = np.add.reduceat(has_some.astype(np.int64), self.chunk_offsets[:-1])
        return np.setdiff1d(np.flatnonzero(counts), self.held_out)

    def get_window(self, number: int) -> NDArray[np.int32]:
        """The tokens of a window."""
        return self.token_ids[self.window_offsets[number] : self.window_offsets[number + 1]]

    def get_neighbours(self, number: int) -> NDArray[np.int64]:
        """The neighbours of a window's chunks, -1 for none."""
        return self.neighbours[self.chunk_offsets[number] : self.chunk_offsets[number + 1]]

    def read(self, chunk_ids: NDArray[np.int64]) -> dict[int, NDArray[np.int32]]:
        """The tokens of neighbours and of what follows them."""
        wanted = np.unique(chunk_ids[chunk_ids >= 0])
        places = np.searchsorted(self.neighbour_ids, wanted)
        bounds = self.neighbour_offsets
        return {
            chunk: self.neighbour_tokens[bounds[place] : bounds[place + 1]]
            for chunk, place in zip(wanted.tolist(), places.tolist(), strict=True)
        }


def load_examples(
    index: PhraseIndex,
    model: CogModel,
    *,
    config: RetroConfig,
    settings: RetroParams,
    progress: Progress,
) -> RetroExamples:
    """Open the examples of an index, found before or now."""
    source = NeighbourSource(index, model, config=config)
    window_tokens = min(settings.window_tokens, model.prefix_encoder.max_positions)
    sizes = ("chunk_tokens", "neighbour_tokens", "continuation_tokens", "num_neighbours")
    decisive = {
        "format": FORMAT_VERSION,
        "index": index.digest,
        "model": model.fingerprint,
        "window_tokens": window_tokens,
        **{name: getattr(config, name) for name in sizes},
        "held_out_share": settings.held_out_share,
        "seed": settings.seed,
    }
    key = hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()[:16]

    def build(folder: Path) -> None:
        maker = _Maker(index, model, source, chunk_tokens=config.chunk_tokens)
        maker.write(folder, window_tokens, settings, progress)

    folder = convert_cached(f"retro-{key}", build, progress=progress)
    examples = RetroExamples(
        folder, *(np.load(folder / f"{name}.npy", mmap_mode="r") for name in _list_arrays())
    )
    if not len(examples.list_learnable()):
        corpus_id = index.corpus
        num_left = len(np.unique(np.delete(examples.documents, examples.held_out)))
        raise TrainingError(
            "the adapter of RETRO needs two documents or more that are not held out, "
            "since neighbours are of other documents",
            found=f"{num_left} of over {config.chunk_tokens} tokens in {corpus_id}",
            run="name another corpus, or lower retro.held_out_share in params.yaml",
            about=corpus_id,
        )
    return examples


def _list_arrays() -> list[str]:
    return [field.name for field in fields(RetroExamples) if field.name != "folder"]


class _Maker:
    # cuts windows and finds the neighbours of their chunks
    def __init__(
        self, index: PhraseIndex, model: CogModel, source: NeighbourSource, *, chunk_tokens: int
    ) -> None:
        self._index, self._model, self._source = index, model, source
        self._size = chunk_tokens

    def write(
        self, folder: Path, window_tokens: int, settings: RetroParams, progress: Progress
    ) -> None:
        windows, documents = self._cut(window_tokens)
        num_held_out = int(len(np.unique(documents)) * settings.held_out_share)
        _, held_out = split_documents(
            documents.astype(np.int32), num_held_out=num_held_out, seed=settings.seed
        )
        counts = np.array([(len(window) - 1) // self._size for window in windows])
        progress.say(f"{len(windows):,} windows; neighbours of {counts.sum():,} chunks are found")
        neighbours = self._find(windows, documents, documents[held_out])
        tokens = dict(sorted(self._source.read(neighbours).items()))
        lengths = np.array([len(each) for each in tokens.values()], dtype=np.int64)
        examples = RetroExamples(
            folder=folder,
            token_ids=np.concatenate(windows),
            window_offsets=_offsets(np.array([len(window) for window in windows])),
            documents=documents,
            held_out=held_out,
            chunk_offsets=_offsets(counts),
            neighbours=neighbours,
            neighbour_ids=np.array(list(tokens), dtype=np.int64),
            neighbour_tokens=np.concatenate([np.zeros(0, np.int32), *tokens.values()]),
            neighbour_offsets=_offsets(lengths),
        )
        for name in _list_arrays():
            np.save(folder / f"{name}.npy", getattr(examples, name))

    def _cut(self, window_tokens: int) -> tuple[list[NDArray[np.int32]], NDArray[np.int64]]:
        begin = self._model.prefix_encoder.begin_token_id
        start = np.array([] if begin is None else [begin], dtype=np.int32)
        room = window_tokens - len(start)
        windows: list[NDArray[np.int32]] = []
        owners: list[int] = []
        for ordinal, text in self._iter_texts():
            ids = self._model.splitter.encode(text)
            for first in range(0, len(ids), room):
                first = min(first, max(0, len(ids) - room))  # the last one is as long as the rest
                window = np.concatenate([start, ids[first : first + room]]).astype(np.int32)
                if len(window) > self._size:
                    windows.append(window)
                    owners.append(ordinal)
        if not windows:
            corpus_id = self._index.corpus
            raise TrainingError(
                f"the adapter of RETRO needs documents of over {self._size} tokens",
                found=f"none in {corpus_id}",
                run="name another corpus, or join its lines to documents (format.documents)",
                about=corpus_id,
            )
        return windows, np.array(owners, dtype=np.int64)

    def _iter_texts(self) -> Iterator[tuple[int, str]]:
        num_documents = self._index.num_documents
        for first in range(0, num_documents, DOCUMENTS_PER_READ):
            ordinals = range(first, min(first + DOCUMENTS_PER_READ, num_documents))
            for ordinal, document in sorted(self._index.get_documents(ordinals).items()):
                yield ordinal, document.text

    def _find(
        self,
        windows: list[NDArray[np.int32]],
        documents: NDArray[np.int64],
        held_out: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        allowed = self._index.allow(self._index.count_licences(), excluded=held_out.tolist())
        begin, size = self._model.prefix_encoder.begin_token_id, self._size
        texts, owners = [], []
        for window, document in zip(windows, documents.tolist(), strict=True):
            ids = window.tolist()
            for first in range(0, len(ids) - size, size):
                chunk = ids[first : first + size]
                texts.append(read_chunk(self._model.splitter, chunk, begin_token_id=begin))
                owners.append(document)
        left_out = np.array(owners, dtype=np.int64)
        found = [
            self._source.find(
                texts[first : first + TEXTS_PER_PASS],
                left_out=left_out[first : first + TEXTS_PER_PASS],
                allowed=allowed,
            )
            for first in range(0, len(texts), TEXTS_PER_PASS)
        ]
        return np.concatenate(found)


def _offsets(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
