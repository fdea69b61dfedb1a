"""In-batch segmentation against a plain loop over all pairs of words."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from cog.model.words import BARRED
from cog.profiles import LoopProfile
from cog.training.segmentation.in_batch import segment_in_batch
from cog.training.segmentation.records import BatchLabels, BatchRules, ChunkWords
from tests.training.segmentation.making import make_chunk, random_words, spans_of

LOOP = LoopProfile(min_prefix_tokens=0, context_tokens=0, inner_share=0.0, common_weight=1.0)
RULES = BatchRules(
    begin_token_id=0, min_phrase_words=2, max_phrase_words=8, loop=LOOP, inner_of_copies=True
)
NO_WORDS = np.zeros(0, dtype=np.uint64)


def segment(
    chunks: Sequence[ChunkWords],
    rules: BatchRules = RULES,
    *,
    common_words: NDArray[np.uint64] = NO_WORDS,
) -> BatchLabels:
    random = np.random.default_rng(0)
    return segment_in_batch(chunks, rules, common_words=common_words, random=random)


def phrase_text(chunk: ChunkWords, first: int, num_words: int) -> bytes:
    return chunk.text[chunk.word_bytes[first] : chunk.word_bytes[first + num_words]]


Label = tuple[int, int, int, set[tuple[int, int, int]], set[tuple[int, int, int]]]


def segment_plainly(chunks: Sequence[ChunkWords], rules: BatchRules = RULES) -> list[Label]:
    """(chunk, word, phrase words, positives, neutrals); a span is (chunk, word, words)."""
    labels = []
    for number, chunk in enumerate(chunks):
        word = int((chunk.word_tokens[:-1] < rules.loop.min_prefix_tokens).sum())
        while word < chunk.num_words:
            right, other = set(), set()
            left = chunk.num_words - word
            for source_number, source in enumerate(chunks):
                if source_number == number:
                    continue
                for first in range(source.num_words):
                    for size in range(rules.min_phrase_words, rules.max_phrase_words + 1):
                        if not spans_of(source.word_flags, first, size, source.num_words):
                            continue
                        span = (source_number, first, size)
                        known = min(size, left)
                        if phrase_text(source, first, known) != phrase_text(chunk, word, known):
                            continue
                        is_right = size <= left and source.document != chunk.document
                        (right if is_right else other).add(span)
            longest = max((size for _, _, size in right), default=0)
            positives = {span for span in right if span[2] == longest}
            labels.append((number, word, longest, positives, other | (right - positives)))
            word += max(longest, 1)
    return labels


def read_labels(labels: BatchLabels, chunks: Sequence[ChunkWords]) -> list[Label]:
    """The same form, of the labels at word boundaries."""
    width = labels.span_mask.shape[1]
    starts = np.cumsum([0, *(chunk.num_words for chunk in chunks)])

    def span(flat: int) -> tuple[int, int, int]:
        word = flat // width
        chunk = int(labels.word_chunks[word])
        return chunk, word - int(starts[chunk]), flat % width + 2

    found = []
    for query, number in enumerate(labels.query_chunks.tolist()):
        token = int(labels.query_positions[query])  # behind one begin token
        words = np.flatnonzero(chunks[number].word_tokens[:-1] == token).tolist()
        if not words:
            continue
        lists = []
        for offsets, spans in (
            (labels.positive_offsets, labels.positive_spans),
            (labels.neutral_offsets, labels.neutral_spans),
        ):
            part = spans[offsets[query] : offsets[query + 1]].tolist()
            assert part == sorted(set(part))
            lists.append({span(flat) for flat in part})
        longest = max((size for _, _, size in lists[0]), default=0)
        assert bool(longest) == labels.is_phrase[query]
        found.append((number, words[0], longest, *lists))
    return found


def random_chunks(seed: int, *, hash_bits: int = 64) -> list[ChunkWords]:
    random = np.random.default_rng(seed)
    vocab_size = int(random.integers(2, 11))
    return [
        make_chunk(
            random_words(random, num_words=int(random.integers(1, 25)), vocab_size=vocab_size),
            document=int(random.integers(0, 4)),
            hash_bits=hash_bits,
        )
        for _ in range(int(random.integers(1, 8)))
    ]


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize(("shortest", "longest"), [(2, 8), (3, 5), (2, 2)])
def test_labels_equal_a_plain_loop(seed: int, shortest: int, longest: int) -> None:
    chunks = random_chunks(seed)
    rules = replace(RULES, min_phrase_words=shortest, max_phrase_words=longest)
    assert read_labels(segment(chunks, rules), chunks) == segment_plainly(chunks, rules)


def test_the_made_batches_hold_every_kind_of_label() -> None:
    found = [label for seed in range(25) for label in segment_plainly(random_chunks(seed))]
    assert {label[2] for label in found} >= {0, 2, 3, 4, 5}
    assert any(len(label[3]) > 1 for label in found)
    assert any(label[4] for label in found)


@pytest.mark.parametrize("bits", [0, 1, 2])
def test_words_of_one_hash_are_told_apart_by_their_texts(bits: int) -> None:
    for seed in range(8):
        exact, collided = random_chunks(seed), random_chunks(seed, hash_bits=bits)
        assert read_labels(segment(collided), collided) == read_labels(segment(exact), exact)


def test_a_word_that_the_encoder_does_not_see_is_no_source_but_can_be_written() -> None:
    words = [" the", " old", " mill"]
    seen, unseen = make_chunk(words, document=0), make_chunk(words, document=1)
    unseen = replace(unseen, word_flags=unseen.word_flags | BARRED)
    labels = segment([seen, unseen])
    assert read_labels(labels, [seen, unseen]) == segment_plainly([seen, unseen])
    assert labels.query_chunks[labels.is_phrase].tolist() == [1]


def test_queries_name_the_column_and_the_token_that_follows() -> None:
    chunks = random_chunks(3)
    all_rules = replace(RULES, loop=replace(LOOP, inner_share=1.0))
    for begin_token_id in (None, 0):
        labels = segment(chunks, replace(all_rules, begin_token_id=begin_token_id))
        seen = list(zip(labels.query_chunks, labels.query_positions, strict=True))
        assert seen == sorted(set(seen))
        for chunk, position, token in zip(
            *zip(*seen, strict=True), labels.gold_tokens, strict=True
        ):
            row = ([] if begin_token_id is None else [0]) + chunks[chunk].token_ids.tolist()
            assert row[position + 1] == token
    no_phrases = [make_chunk([" a", " bcd", " efghi"], document=i) for i in range(1)]
    labels = segment(no_phrases, all_rules)
    assert labels.query_positions.tolist() == list(range(len(no_phrases[0].token_ids)))
    assert not labels.is_phrase.any()


def test_a_share_of_the_positions_inside_words_is_queried() -> None:
    chunks = [make_chunk([" ab"] * 4000, document=0)]
    num_inner = len(chunks[0].token_ids) - chunks[0].num_words
    assert num_inner == 4000
    labels = segment(chunks, replace(RULES, loop=replace(LOOP, inner_share=0.25)))
    num_words = len(segment(chunks).query_chunks)
    assert num_words == chunks[0].num_words
    assert 900 < len(labels.query_chunks) - num_words < 1100


@pytest.mark.parametrize("seed", range(10))
def test_all_choices_that_write_a_chunk_write_each_token_once(seed: int) -> None:
    chunks = random_chunks(seed)
    labels = segment(
        chunks, replace(RULES, loop=replace(LOOP, inner_share=1.0), inner_of_copies=False)
    )
    phrases = {each[:2]: each[2] for each in read_labels(labels, chunks)}
    written: list[list[int]] = [[] for _ in chunks]
    for query, number in enumerate(labels.query_chunks.tolist()):
        words, token = chunks[number], int(labels.query_positions[query])
        end = token + 1
        if labels.is_phrase[query]:
            word = int(np.searchsorted(words.word_tokens, token))
            end = int(words.word_tokens[word + phrases[number, word]])
        assert words.token_ids[token] == labels.gold_tokens[query]
        written[number] += words.token_ids[token:end].tolist()
    assert written == [chunk.token_ids.tolist() for chunk in chunks]


def test_the_first_tokens_are_no_queries_where_a_prefix_is_wanted() -> None:
    num_phrases = 0
    for seed, min_prefix_tokens in zip(range(12), (1, 3, 6) * 4, strict=True):
        chunks = random_chunks(seed)
        rules = replace(RULES, loop=replace(LOOP, min_prefix_tokens=min_prefix_tokens))
        found = segment(chunks, rules)
        assert found.query_positions.min(initial=9) >= min_prefix_tokens
        num_phrases += int(found.is_phrase.sum())
        assert read_labels(found, chunks) == segment_plainly(chunks, rules)
    assert num_phrases > 20


def test_phrases_of_common_words_weigh_less() -> None:
    chunks = [
        make_chunk([" of", " the", "!", " of", " mills"], document=0),
        make_chunk([" of", " the", "?", " of", " mills"], document=1),
    ]
    common = np.sort(chunks[0].word_hashes[:2])
    labels = segment(
        chunks, replace(RULES, loop=replace(LOOP, common_weight=0.25)), common_words=common
    )
    assert labels.is_phrase.tolist() == [True, False, True] * 2
    assert labels.weights.tolist() == [0.25, 1.0, 1.0] * 2


def test_labels_fit_the_batch() -> None:
    chunks = random_chunks(7)
    labels = segment(chunks)
    num_words = sum(chunk.num_words for chunk in chunks)
    assert labels.span_mask.shape == (num_words, 7)
    for name in ("word_chunks", "query_chunks", "gold_tokens", "positive_spans", "neutral_offsets"):
        assert getattr(labels, name).dtype == np.int64
    assert labels.weights.dtype == np.float32
    assert labels.span_mask.reshape(-1)[labels.positive_spans].all()
    assert labels.span_mask.reshape(-1)[labels.neutral_spans].all()


def test_one_document_has_nothing_to_copy() -> None:
    chunks = [make_chunk([" the", " old", " mill"], document=0) for _ in range(3)]
    labels = segment(chunks)
    assert not labels.is_phrase.any()
    assert not len(labels.positive_spans)
    assert len(labels.neutral_spans)  # the same text in the same document is not wrong
