"""Encoding: batches inside the limit, canonical order, words without a piece."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np

from cog.index.building.encoding import (
    EncodedChunk,
    Encoders,
    LocalPool,
    PendingChunks,
    plan_batches,
)
from cog.index.chunking import Chunk, chunk_document
from cog.index.tables.quantise import quantise
from cog.model.words import BARRED
from tests.index.hash_model import (
    HashPhraseEncoder,
    HashRetriever,
    LeaningEncoder,
    Limits,
    PieceSplitter,
    make_text,
)


def make_chunks(num_documents: int) -> list[Chunk]:
    return [
        chunk
        for i in range(num_documents)
        for block in chunk_document(
            make_text(5 + 11 * i, seed=i),
            document_ordinal=i,
            splitter=PieceSplitter(),
            limits=Limits(),
        )
        for chunk in block.chunks
    ]


def encode(
    chunks: Sequence[Chunk],
    encoder: HashPhraseEncoder,
    *,
    batch_tokens: int = 100,
    task_pieces: int = 0,
) -> Iterator[tuple[int, EncodedChunk]]:
    encoders = Encoders(encoder, HashRetriever(), vector_dtype="int8")
    with ThreadPoolExecutor(1) as threads:
        pool = replace(LocalPool(encoders, threads), task_pieces=task_pieces)
        pending = PendingChunks(chunks, encoders=encoders, pool=pool, batch_tokens=batch_tokens)
        yield from pending.iter_encoded()


def test_batches_hold_every_chunk_once_within_the_limit() -> None:
    lengths = np.random.default_rng(0).integers(3, 130, 500)
    batches = list(plan_batches(lengths, batch_tokens=1000))
    assert sorted(i for batch in batches for i in batch) == list(range(500))
    assert all(len(batch) * lengths[batch].max() <= 1000 for batch in batches)
    assert all(len(set(lengths[batch])) == 1 for batch in batches)  # nothing is padded
    assert len(batches) <= len(set(lengths)) + 500 * 130 // 1000


def test_chunk_longer_than_a_batch_is_a_batch() -> None:
    assert list(plan_batches(np.array([50, 60]), batch_tokens=10)) == [[1], [0]]


def test_batches_are_the_same_each_time() -> None:
    lengths = np.random.default_rng(1).integers(3, 9, 100)
    first = list(plan_batches(lengths, batch_tokens=40))
    assert first == list(plan_batches(lengths, batch_tokens=40))


def test_each_chunk_gets_its_own_vectors() -> None:
    chunks = make_chunks(9)
    encoder, retriever = HashPhraseEncoder(), HashRetriever()
    found = dict(encode(chunks, encoder))
    assert sorted(found) == list(range(len(chunks)))
    assert len(encoder.batches) > 3
    for position, chunk in enumerate(chunks):
        (alone,) = encoder.encode_chunks([chunk.text], [chunk.word_spans()])
        assert found[position].chunk is chunk
        np.testing.assert_array_equal(
            found[position].start.vectors, quantise(alone.start, dtype="int8").vectors
        )
        np.testing.assert_array_equal(
            found[position].end.scales, quantise(alone.end, dtype="int8").scales
        )
        np.testing.assert_array_equal(
            found[position].vector, retriever.encode_texts([chunk.text])[0]
        )


def test_words_without_a_piece_are_barred() -> None:
    class BlindEncoder(HashPhraseEncoder):
        def encode_chunks(self, texts: Sequence[str], word_spans: Sequence[np.ndarray]) -> list:
            encoded = super().encode_chunks(texts, word_spans)
            for words in encoded:
                words.has_piece[1] = False
            return encoded

    (chunk, *_) = make_chunks(1)
    before = chunk.word_flags.copy()
    ((_, encoded),) = encode([chunk], BlindEncoder())
    assert encoded.word_flags[1] == before[1] | BARRED
    np.testing.assert_array_equal(np.delete(encoded.word_flags, 1), np.delete(before, 1))


def test_encoder_that_counts_pieces_decides_the_batches() -> None:
    class CountingEncoder(HashPhraseEncoder):
        def count_pieces(self, texts: Sequence[str]) -> np.ndarray:
            return np.full(len(texts), 50)

    encoder = CountingEncoder()
    chunks = make_chunks(4)
    list(encode(chunks, encoder))
    assert encoder.batches == [2] * (len(chunks) // 2) + [1] * (len(chunks) % 2)


def test_encoder_whose_batches_change_its_vectors_is_found_out() -> None:
    alike, leaning = (
        Encoders(each, HashRetriever(), "int8").measure_batch_change()
        for each in (HashPhraseEncoder(), LeaningEncoder())
    )
    assert alike == 0.0
    assert 0.0 < leaning < 1e-5


def test_alone_means_batches_of_one() -> None:
    chunks, encoder = make_chunks(5), HashPhraseEncoder()
    list(encode(chunks, encoder, batch_tokens=0))
    assert encoder.batches == [1] * len(chunks)


def test_batches_are_the_same_however_many_are_handed_over_at_once() -> None:
    chunks, one, many = make_chunks(9), HashPhraseEncoder(), HashPhraseEncoder()
    found = [position for position, _ in encode(chunks, one)]
    assert [position for position, _ in encode(chunks, many, task_pieces=300)] == found
    assert many.batches == one.batches
