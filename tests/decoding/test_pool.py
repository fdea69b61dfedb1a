"""Pools: agreement against a search token by token, runs, and chunks that are put in order."""

from dataclasses import replace

import numpy as np
import pytest

from cog.index.records import GatheredChunks
from cog.index.tables.gather import sort_chunks
from tests.decoding.synthetic import PAPER, TOKENS, lay_out, make_chunks, make_pool, plain_agreement

LENGTHS = (9, 7, 12, 1, 30, 14)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("gap", [0, 1])
def test_agreement_equals_a_search_token_by_token(seed: int, gap: int) -> None:
    chunks, _ = make_chunks(seed, lengths=LENGTHS, gap=gap)
    pool = make_pool(chunks)
    random = np.random.default_rng(seed)
    for num_tokens in (0, 1, 2, 3, 10):
        end = int(random.integers(num_tokens, len(chunks.token_ids) + 1))
        tail = chunks.token_ids[end - num_tokens : end].tolist()
        if num_tokens > 2 and seed % 2:
            tail[0] = int(random.integers(len(TOKENS)))
        found = pool.find_agreement(tail)
        wanted = plain_agreement(chunks, tail)
        assert dict(zip(found.positions.tolist(), found.num_tokens.tolist(), strict=True)) == wanted
        assert found.positions.tolist() == sorted(wanted)
        for position in range(len(chunks.token_ids)):
            assert found.at(position) == wanted.get(position, 0)
        bounds = chunks.word_tokens[found.words]
        assert (bounds[:, 0] <= found.positions).all()
        assert (found.positions < bounds[:, 1]).all()
        few = found.beyond(2)
        assert few.positions.tolist() == [p for p in sorted(wanted) if wanted[p] > 2]


def test_agreement_reaches_across_chunks_of_a_run_alone() -> None:
    texts = [[[" the", " mill"], [" river", " Ada"]], [[" mist", " the"]]]
    whole = make_pool(lay_out(texts))
    tail = whole.chunks.token_ids[:6].tolist()  # up to the end of " river"
    begins = whole.begins.tolist()
    assert whole.find_agreement(tail).at(begins[3]) == 6
    assert whole.find_agreement(tail[:3]).at(begins[2]) == 3
    apart = make_pool(lay_out(texts, gap=1))
    assert apart.find_agreement(tail).at(begins[3]) == 3
    assert apart.find_agreement(tail[:3]).at(begins[2]) == 0


def test_runs_are_chunks_that_touch_in_one_document() -> None:
    texts = [[["bread"], [" the", " the"]], [[" mill"], [" mist"]]]
    pool = make_pool(lay_out(texts))
    assert pool.run_starts.tolist() == [0, 0, 0, 3, 3]
    assert pool.run_ends.tolist() == [3, 3, 3, 5, 5]
    assert [pool.get_place(word) for word in range(5)] == [(0, 0), (0, 5), (0, 9), (1, 0), (1, 5)]
    pool = make_pool(lay_out(texts, gap=2))
    assert pool.run_starts.tolist() == [0, 1, 1, 3, 4]
    assert pool.run_ends.tolist() == [1, 3, 3, 4, 5]
    assert (pool.tokens_before[pool.begins] == -1).tolist() == [True, True, False, True, True]
    empty = make_pool(make_chunks(0, lengths=())[0])
    assert (empty.num_words, len(empty.phrases)) == (0, 0)
    assert empty.num_bytes == empty.phrases.repeated_bounds.nbytes
    assert not len(empty.find_agreement([1, 2]).words)


def test_a_document_is_as_near_as_its_best_chunk() -> None:
    chunks, _ = make_chunks(0, lengths=(2, 3, 1, 1))
    pool = make_pool(chunks, similarities={0: 0.25, 1: 0.5, 2: 0.125})
    assert pool.similarities.tolist() == [0.5] * 5 + [1.0, 1.0]  # 1 where none is told


def words_of(chunks: GatheredChunks) -> list[tuple[object, ...]]:
    """All that is known of each word, by chunk."""
    found = []
    for k, chunk in enumerate(chunks.chunk_ids.tolist()):
        for word in range(chunks.word_offsets[k], chunks.word_offsets[k + 1]):
            tokens = chunks.token_ids[slice(*chunks.word_tokens[word])]
            found.append(
                (
                    chunk,
                    int(chunks.document_ordinals[k]),
                    tuple(chunks.word_chars[word].tolist()),
                    tuple(tokens.tolist()),
                    int(chunks.word_hashes[word]),
                    int(chunks.word_flags[word]),
                    tuple(chunks.start_vectors[word].tolist()),
                    tuple(chunks.end_vectors[word].tolist()),
                    float(chunks.start_scales[word]),
                    float(chunks.end_scales[word]),
                )
            )
    return found


def take(chunks: GatheredChunks, k: int) -> GatheredChunks:
    """One chunk alone."""
    words = slice(*chunks.word_offsets[k : k + 2])
    tokens = chunks.word_tokens[words]
    return replace(
        chunks,
        chunk_ids=chunks.chunk_ids[k : k + 1],
        document_ordinals=chunks.document_ordinals[k : k + 1],
        word_offsets=np.array([0, words.stop - words.start]),
        start_vectors=chunks.start_vectors[words],
        end_vectors=chunks.end_vectors[words],
        start_scales=chunks.start_scales[words],
        end_scales=chunks.end_scales[words],
        word_flags=chunks.word_flags[words],
        word_hashes=chunks.word_hashes[words],
        word_chars=chunks.word_chars[words],
        word_tokens=tokens - tokens[0, 0],
        token_ids=chunks.token_ids[tokens[0, 0] : tokens[-1, 1]],
    )


@pytest.mark.parametrize("seed", range(10))
def test_chunks_are_put_in_order_with_all_that_is_theirs(seed: int) -> None:
    chunks, _ = make_chunks(seed, lengths=LENGTHS)
    order = np.random.default_rng(seed).permutation(len(LENGTHS))
    found = sort_chunks([take(chunks, k) for k in order.tolist()])
    assert words_of(found) == words_of(chunks)
    assert found.token_ids.tolist() == chunks.token_ids.tolist()
    assert make_pool(found).run_starts.tolist() == make_pool(chunks).run_starts.tolist()


@pytest.mark.parametrize("seed", range(5))
def test_what_is_known_of_words_that_begin_a_phrase(seed: int) -> None:
    chunks, words = make_chunks(seed)
    pool = make_pool(chunks, PAPER)
    begins = [words[i] for i in pool.phrases.begin_words.tolist()]
    assert pool.has_space.tolist() == [word.startswith(" ") for word in begins]
    firsts = [TOKENS[i] for i in pool.first_tokens.tolist()]
    assert all(word.startswith(token) for word, token in zip(begins, firsts, strict=True))
