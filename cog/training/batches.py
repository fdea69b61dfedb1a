"""Batches: their numbers go in, padded and labelled arrays come out, made in worker processes.

No torch here: a worker loads numpy and the examples' files, nothing else.
"""

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cog.training.examples import ExampleStore
from cog.training.sampler import BatchSampler, SamplerSettings
from cog.training.segmentation.in_batch import segment_in_batch
from cog.training.segmentation.records import BatchLabels, BatchRules
from cog.training.workers import iter_in_workers


@dataclass(frozen=True, slots=True)
class Batch:
    """Chunks that are at once prefixes to predict and sources to copy from."""

    number: int  # what it was drawn by
    documents: NDArray[np.int64]  # (num_documents,) documents of its chunks, each once
    # (num_chunks, prefix_len) begin token, text before the chunk, and chunk, padded on the right
    token_ids: NDArray[np.int64]
    token_mask: NDArray[np.bool_]  # (num_chunks, prefix_len) where there is a token
    # (num_chunks,) column of each chunk's first token that is to be predicted: what stands before
    # it is the begin token and text before the chunk, or the chunk's first token where there is
    # neither
    target_starts: NDArray[np.int64]
    piece_ids: NDArray[np.int64]  # (num_chunks, num_pieces) WordPieces, padded on the right
    piece_mask: NDArray[np.bool_]  # (num_chunks, num_pieces) where there is a piece
    start_pieces: NDArray[np.int64]  # (num_words,) column of the first piece of each word
    end_pieces: NDArray[np.int64]  # (num_words,) column of the last piece of each word
    labels: BatchLabels

    @property
    def num_chunks(self) -> int:
        """Number of chunks."""
        return len(self.token_ids)

    @property
    def num_tokens(self) -> int:
        """Number of tokens to predict: all of the chunks, not what stands before them."""
        return int(self.token_mask.sum() - self.target_starts.sum())

    @property
    def num_words(self) -> int:
        """Number of words of all chunks."""
        return len(self.labels.word_chunks)

    @property
    def num_queries(self) -> int:
        """Number of positions that choose a segment."""
        return len(self.labels.query_chunks)


@dataclass(frozen=True, slots=True)
class BatchSource:
    """Everything a worker needs to make batches."""

    folder: Path
    chunks: NDArray[np.int64]  # (num_candidates,) numbers of the chunks that may be drawn
    vectors_path: Path | None  # the retriever's vectors of all chunks; None for random batches
    sampler: SamplerSettings
    rules: BatchRules


class BatchMaker:
    """Draws, pads and labels batches."""

    def __init__(self, source: BatchSource) -> None:
        self._seed, self._rules = source.sampler.seed, source.rules
        self._store = ExampleStore(source.folder)
        path = source.vectors_path
        vectors = None if path is None else np.load(path, mmap_mode="r")
        documents = self._store.documents[source.chunks]
        self._sampler = BatchSampler(source.chunks, documents, vectors, settings=source.sampler)

    def __call__(self, number: int) -> Batch:
        """Make one batch; the same number gives the same batch, anywhere."""
        chunks = self._sampler.draw(number).tolist()
        examples = [self._store.get(chunk) for chunk in chunks]
        labels = segment_in_batch(
            examples,
            self._rules,
            common_words=self._store.common_words,
            random=np.random.default_rng([self._seed, 3, number]),
        )
        begin_id, max_tokens = self._rules.begin_token_id, self._rules.loop.context_tokens
        begin = np.array([] if begin_id is None else [begin_id], dtype=np.int32)
        contexts = [self._store.get_context(chunk, max_tokens=max_tokens) for chunk in chunks]
        token_ids, token_mask = pad_rows(
            [
                np.concatenate([begin, context, example.token_ids])
                for context, example in zip(contexts, examples, strict=True)
            ]
        )
        # labels count from the begin token, rows have the text before the chunk behind it
        num_before = np.array([len(context) for context in contexts], dtype=np.int64)
        positions = labels.query_positions + num_before[labels.query_chunks]
        piece_ids, piece_mask = pad_rows([example.piece_ids for example in examples])
        return Batch(
            number=number,
            documents=np.unique([example.document for example in examples]),
            token_ids=token_ids,
            token_mask=token_mask,
            target_starts=np.maximum(num_before + len(begin), 1),
            piece_ids=piece_ids,
            piece_mask=piece_mask,
            start_pieces=np.concatenate([each.start_pieces for each in examples]).astype(np.int64),
            end_pieces=np.concatenate([each.end_pieces for each in examples]).astype(np.int64),
            labels=replace(labels, query_positions=positions),
        )


def iter_batches(
    source: BatchSource, numbers: Iterable[int], *, num_workers: int
) -> Generator[Batch, None, None]:
    """Make batches ahead of their use.

    With 0 workers this process makes them. They come in the order of their numbers, which may be
    endless, whatever the number of workers.
    """
    return iter_in_workers(BatchMaker, source, numbers, num_workers=num_workers)


def pad_rows(
    rows: Sequence[NDArray[np.generic]],
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Pad rows on the right with 0; second comes what is no padding.

    *Shape:* twice ``(num_rows, max_len)``
    """
    lengths = np.array([len(row) for row in rows])
    mask = np.arange(lengths.max()) < lengths[:, None]  # (num_rows, max_len)
    ids = np.zeros(mask.shape, dtype=np.int64)
    ids[mask] = np.concatenate(rows)
    return ids, mask
