"""Batches: chunk numbers go in, padded and labelled arrays come out, made in worker processes.

No torch here: a worker loads numpy and the examples' files, nothing else.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cog.training.batch import Batch
from cog.training.examples import Example, ExampleStore
from cog.training.sampler import BatchSampler, SamplerSettings
from cog.training.segmentation.in_batch import QueryRules, segment_in_batch
from cog.training.workers import iter_in_workers

AHEAD_PER_WORKER = 3


@dataclass(frozen=True, slots=True)
class PhraseLengths:
    """How long phrases are."""

    min_phrase_words: int
    max_phrase_words: int


@dataclass(frozen=True, slots=True)
class BatchRules:
    """What decides how chunks become a batch.

    :param begin_token_id: Token put before every chunk; None for none.
    :param min_prefix_tokens: Number of a chunk's tokens before a query, at least.
    :param context_tokens: Number of tokens before a chunk that are read with it, at most.
    :param inner_share: Share of the positions inside words that are queries too.
    :param inner_of_copies: Whether those may lie in the words of a phrase.
    """

    begin_token_id: int | None
    lengths: PhraseLengths
    min_prefix_tokens: int
    context_tokens: int
    inner_share: float
    inner_of_copies: bool
    common_weight: float


@dataclass(frozen=True, slots=True)
class BatchSource:
    """Everything a worker needs to make batches.

    :param chunks: Numbers of the chunks that may be drawn. *Shape:* ``(num_candidates,)``
    :param vectors_path: The retriever's vectors of all chunks; None for random batches.
    """

    folder: Path
    chunks: NDArray[np.int64]
    vectors_path: Path | None
    sampler: SamplerSettings
    rules: BatchRules


@dataclass(frozen=True, slots=True)
class NumberedBatch:
    """A batch that knows where it came from."""

    number: int
    batch: Batch
    documents: NDArray[np.int64]

    @property
    def num_tokens(self) -> int:
        """Number of tokens that are learnt from."""
        return self.batch.num_tokens


class BatchMaker:
    """Draws, assembles and labels batches."""

    def __init__(self, source: BatchSource) -> None:
        self._source = source
        self._store = ExampleStore(source.folder)
        path = source.vectors_path
        vectors = None if path is None else np.load(path, mmap_mode="r")
        self._sampler = BatchSampler(
            source.chunks,
            self._store.documents[source.chunks],
            vectors,
            settings=source.sampler,
        )
        rules = source.rules
        self._rules = QueryRules(
            num_begin_tokens=0 if rules.begin_token_id is None else 1,
            min_prefix_tokens=rules.min_prefix_tokens,
            inner_share=rules.inner_share,
            inner_of_copies=rules.inner_of_copies,
            common_words=self._store.common_words,
            common_weight=rules.common_weight,
        )

    def make(self, number: int) -> NumberedBatch:
        """Make one batch; the same number gives the same batch, anywhere."""
        chunks = self._sampler.draw(number).tolist()
        examples = [self._store.get(chunk) for chunk in chunks]
        max_tokens = self._source.rules.context_tokens
        contexts = [self._store.get_context(chunk, max_tokens=max_tokens) for chunk in chunks]
        random = np.random.default_rng([self._source.sampler.seed, 3, number])
        batch = assemble_batch(
            examples,
            contexts=contexts,
            begin_token_id=self._source.rules.begin_token_id,
            lengths=self._source.rules.lengths,
            rules=self._rules,
            random=random,
        )
        documents = np.unique([example.words.document for example in examples])
        return NumberedBatch(number, batch, documents)


def assemble_batch(
    examples: Sequence[Example],
    *,
    contexts: Sequence[NDArray[np.int32]],
    begin_token_id: int | None,
    lengths: PhraseLengths,
    rules: QueryRules,
    random: np.random.Generator,
) -> Batch:
    """Pad chunks to one length and label them against each other.

    :param examples: The chunks.
    :param contexts: Tokens that stand before each of them in its document, which lengthen its
        prefixes. *Shape:* of each ``(num,)``
    :param begin_token_id: Token put before each of them; None for none.
    :param lengths: How long phrases are.
    :param rules: Which positions are queries.
    :param random: Chooses the positions inside words.
    :returns: The batch.
    """
    labels = segment_in_batch(
        [example.words for example in examples], limits=lengths, rules=rules, random=random
    )
    begin = np.array([] if begin_token_id is None else [begin_token_id], dtype=np.int32)
    token_ids, token_mask = _pad(
        [
            np.concatenate([begin, context, each.words.token_ids])
            for context, each in zip(contexts, examples, strict=True)
        ]
    )
    lengths_before = np.array([len(context) for context in contexts], dtype=np.int64)
    piece_ids, piece_mask = _pad([example.piece_ids for example in examples])
    return Batch(
        token_ids=token_ids,
        token_mask=token_mask,
        target_starts=np.maximum(lengths_before + len(begin), 1),
        piece_ids=piece_ids,
        piece_mask=piece_mask,
        word_chunks=labels.word_chunks,
        start_pieces=np.concatenate([each.start_pieces for each in examples]).astype(np.int64),
        end_pieces=np.concatenate([each.end_pieces for each in examples]).astype(np.int64),
        span_mask=labels.span_mask,
        query_chunks=labels.query_chunks,
        query_positions=labels.query_positions + lengths_before[labels.query_chunks],
        gold_tokens=labels.gold_tokens,
        is_phrase=labels.is_phrase,
        positive_offsets=labels.positive_offsets,
        positive_spans=labels.positive_spans,
        neutral_offsets=labels.neutral_offsets,
        neutral_spans=labels.neutral_spans,
        weights=labels.weights,
    )


def iter_batches(
    source: BatchSource, numbers: Iterable[int], *, num_workers: int
) -> Generator[NumberedBatch, None, None]:
    """Make batches ahead of their use.

    With 0 workers this process makes them. They come in the order of their numbers, which may be
    endless, whatever the number of workers.
    """
    return iter_in_workers(
        _make_maker,
        (source,),
        numbers,
        num_workers=num_workers,
        ahead=AHEAD_PER_WORKER * num_workers,
    )


def _make_maker(source: BatchSource) -> Callable[[int], NumberedBatch]:
    return BatchMaker(source).make


def _pad(
    rows: Sequence[NDArray[np.generic]],
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    lengths = np.array([len(row) for row in rows])
    mask = np.arange(lengths.max()) < lengths[:, None]  # (num_rows, max_len)
    ids = np.zeros(mask.shape, dtype=np.int64)
    ids[mask] = np.concatenate(rows)
    return ids, mask
