"""In-batch segmentation: the chunks of a batch go in, the label of every query comes out.

Every chunk is at once a prefix to predict and a source to copy from, so nothing has to be stored
and hard negatives come free. Forward maximum matching (CoG, appendix B) against the chunks of other
documents; exact, since runs of words are compared, never only their hashes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cog.model.words import CAN_END, CAN_START
from cog.training.segmentation.grams import (
    GramLevel,
    WordTexts,
    expand_ranges,
    iter_levels,
    mark_spans,
    number_words,
    walk_words,
)
from cog.training.segmentation.records import BatchLabels, BatchRules, ChunkWords


@dataclass(frozen=True, slots=True)
class _BatchWords:
    # the words of all chunks side by side
    numbers: NDArray[np.int64]  # equal if and only if the texts are
    hashes: NDArray[np.uint64]
    flags: NDArray[np.uint8]
    chunks: NDArray[np.int64]
    documents: NDArray[np.int64]
    ends: NDArray[np.int64]  # one past the last word of the word's chunk
    first_tokens: NDArray[np.int64]  # in the chunk
    num_tokens: NDArray[np.int64]
    tokens: NDArray[np.int64]  # of all chunks
    token_starts: NDArray[np.int64]  # of each chunk in `tokens`


@dataclass(frozen=True, slots=True)
class _Queries:
    chunks: NDArray[np.int64]
    tokens: NDArray[np.int64]  # the position in the chunk of the token to predict
    words: NDArray[np.int64]  # -1 inside words


def segment_in_batch(
    chunks: Sequence[ChunkWords],
    rules: BatchRules,
    *,
    common_words: NDArray[np.uint64],
    random: np.random.Generator,
) -> BatchLabels:
    """Segment each chunk against the chunks of other documents, and label its queries.

    From left to right: the longest admissible phrase that another document of the batch holds is
    one segment, else the next word is written token by token. Segments begin behind the tokens
    that are wanted as a prefix. Queries are the beginnings of segments, and some positions inside
    words, which ``random`` chooses; columns count from the begin token as if the chunk followed it.
    Every phrase is equal to each of its positives, word for word. ``common_words`` are ascending
    hashes of words that carry little meaning.
    """
    words = _join_words(chunks)
    min_words, max_words = rules.min_phrase_words, rules.max_phrase_words
    span_mask = mark_spans(words.flags, words.ends, min_words=min_words, max_words=max_words)
    levels = list(
        iter_levels(words.numbers, words.ends, words.chunks, min_words=1, max_words=max_words)
    )
    best = _find_longest(words, span_mask, levels)
    queries = _place_queries(words, best, rules=rules, random=random)
    at_word = np.flatnonzero(queries.words >= 0)
    positives, neutrals = _label_spans(
        words, span_mask, levels, queried=queries.words[at_word], best=best
    )
    num_queries = len(queries.chunks)
    positive_offsets, positive_spans = _group_spans(positives, at_word, num_queries, span_mask.size)
    neutral_offsets, neutral_spans = _group_spans(neutrals, at_word, num_queries, span_mask.size)
    phrase_words = np.where(queries.words >= 0, best[queries.words], 0)
    num_begin_tokens = 0 if rules.begin_token_id is None else 1
    labels = BatchLabels(
        word_chunks=words.chunks,
        span_mask=span_mask,
        query_chunks=queries.chunks,
        query_positions=queries.tokens + num_begin_tokens - 1,
        gold_tokens=words.tokens[words.token_starts[queries.chunks] + queries.tokens],
        is_phrase=phrase_words > 0,
        positive_offsets=positive_offsets,
        positive_spans=positive_spans,
        neutral_offsets=neutral_offsets,
        neutral_spans=neutral_spans,
        weights=np.where(
            _hold_common_alone(words, queries.words, phrase_words, common_words=common_words),
            np.float32(rules.loop.common_weight),
            np.float32(1.0),
        ),
    )
    _check_positives(labels, words, queries.words, phrase_words)
    return labels


def _join_words(chunks: Sequence[ChunkWords]) -> _BatchWords:
    counts = np.array([chunk.num_words for chunk in chunks], dtype=np.int64)
    ends = np.cumsum(counts)
    sizes = np.array([len(chunk.text) for chunk in chunks], dtype=np.int64)
    text_starts = np.cumsum(sizes) - sizes
    bounds = [c.word_bytes[:-1] + s for c, s in zip(chunks, text_starts.tolist(), strict=True)]
    hashes = np.concatenate([chunk.word_hashes for chunk in chunks])
    texts = WordTexts(
        b"".join(chunk.text for chunk in chunks),
        np.append(np.concatenate(bounds), sizes.sum()).astype(np.int64),
    )
    token_counts = np.array([len(chunk.token_ids) for chunk in chunks], dtype=np.int64)
    word_chunks = np.repeat(np.arange(len(chunks)), counts)
    return _BatchWords(
        numbers=number_words(hashes, texts),
        hashes=hashes,
        flags=np.concatenate([chunk.word_flags for chunk in chunks]),
        chunks=word_chunks,
        documents=np.array([chunk.document for chunk in chunks], dtype=np.int64)[word_chunks],
        ends=ends[word_chunks],
        first_tokens=np.concatenate([c.word_tokens[:-1] for c in chunks]).astype(np.int64),
        num_tokens=np.concatenate([np.diff(c.word_tokens) for c in chunks]).astype(np.int64),
        tokens=np.concatenate([chunk.token_ids for chunk in chunks]).astype(np.int64),
        token_starts=np.cumsum(token_counts) - token_counts,
    )


def _find_longest(
    words: _BatchWords, span_mask: NDArray[np.bool_], levels: Sequence[GramLevel]
) -> NDArray[np.int64]:
    # number of words of the longest phrase at each word that another document holds; 0 for none
    best = np.zeros(len(words.numbers), dtype=np.int64)
    for level in levels[1:]:  # lengths ascend, so what is longer overwrites
        # a text is held by another document than a word's own unless both ends of the range of its
        # documents are that one; the smallest and the largest number are all that must be known
        is_source = span_mask[level.firsts, level.num_words - 2]
        documents = words.documents[level.firsts]
        lowest = np.full(level.num_grams, np.iinfo(np.int64).max)
        highest = np.full(level.num_grams, -1)
        np.minimum.at(lowest, level.grams[is_source], documents[is_source])
        np.maximum.at(highest, level.grams[is_source], documents[is_source])
        is_found = (highest[level.grams] >= 0) & (
            (lowest[level.grams] != documents) | (highest[level.grams] != documents)
        )
        best[level.firsts[is_found]] = level.num_words
    return best


def _place_queries(
    words: _BatchWords,
    best: NDArray[np.int64],
    *,
    rules: BatchRules,
    random: np.random.Generator,
) -> _Queries:
    # the beginnings of segments, and a share of the positions inside words; without a begin token
    # nothing stands before a chunk's first token that could predict it
    first_token = max(rules.loop.min_prefix_tokens, 1 if rules.begin_token_id is None else 0)
    best = np.where(words.first_tokens < first_token, 0, best)  # what is given begins no phrase
    # no phrase leaves its chunk, so one walk over all chunks begins each of them anew
    phrases = walk_words(best)
    is_start = np.ones(len(best), dtype=bool)
    is_start[expand_ranges(phrases + 1, best[phrases] - 1)] = False
    starts = np.flatnonzero(is_start)
    num_inner = words.num_tokens - 1
    if not rules.inner_of_copies:
        is_written = is_start.copy()
        is_written[phrases] = False
        num_inner = np.where(is_written, num_inner, 0)
    owners = np.repeat(np.arange(len(num_inner)), num_inner)
    inner = expand_ranges(words.first_tokens + 1, num_inner)
    is_chosen = random.random(len(inner)) < rules.loop.inner_share
    owners, inner = owners[is_chosen], inner[is_chosen]
    chunks = words.chunks[np.concatenate([starts, owners])]
    tokens = np.concatenate([words.first_tokens[starts], inner])
    begun_words = np.concatenate([starts, np.full(len(owners), -1)])
    order = np.argsort(words.token_starts[chunks] + tokens, kind="stable")
    order = order[tokens[order] >= first_token]
    return _Queries(chunks[order], tokens[order], begun_words[order])


_Pairs = list[tuple[NDArray[np.int64], NDArray[np.int64]]]


def _label_spans(
    words: _BatchWords,
    span_mask: NDArray[np.bool_],
    levels: Sequence[GramLevel],
    *,
    queried: NDArray[np.int64],
    best: NDArray[np.int64],
) -> tuple[_Pairs, _Pairs]:
    # (row in `queried`, span id) of all positives, and of all neutrals
    width = span_mask.shape[1]
    positives: _Pairs = []
    neutrals: _Pairs = []
    for level in levels:
        gram_of = np.full(len(words.numbers), -1)  # -1: no other chunk holds the words from here
        gram_of[level.firsts] = level.grams
        grams = gram_of[queried]
        if level.num_words >= 2:
            k = level.num_words - 2
            rows, sources = _pair(level, span_mask[level.firsts, k], grams, rows_of=grams >= 0)
            is_other = words.documents[sources] != words.documents[queried[rows]]
            is_right = is_other & (best[queried[rows]] == level.num_words)
            is_near = words.chunks[sources] == words.chunks[queried[rows]]
            spans = sources * width + k
            positives.append((rows[is_right], spans[is_right]))
            neutrals.append((rows[~is_right & ~is_near], spans[~is_right & ~is_near]))
        # The chunk ends behind n words that others hold. What follows it is not known, so no span
        # of theirs that begins so and goes on is wrong: those of n + 1 words or more, k from n - 1.
        ends_here = (grams >= 0) & (words.ends[queried] - queried == level.num_words)
        rows, sources = _pair(level, np.ones(len(level.firsts), bool), grams, rows_of=ends_here)
        is_near = words.chunks[sources] == words.chunks[queried[rows]]
        rows, sources = rows[~is_near], sources[~is_near]
        pairs, longer = np.nonzero(span_mask[sources, level.num_words - 1 :])
        neutrals.append((rows[pairs], sources[pairs] * width + longer + level.num_words - 1))
    return positives, neutrals


def _pair(
    level: GramLevel,
    is_source: NDArray[np.bool_],
    grams: NDArray[np.int64],
    *,
    rows_of: NDArray[np.bool_],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    # every chosen row with every source of the same text
    rows = np.flatnonzero(rows_of)
    counts = np.bincount(level.grams[is_source], minlength=level.num_grams)
    offsets = np.cumsum(counts) - counts
    sizes = counts[grams[rows]]
    sources = level.firsts[is_source][expand_ranges(offsets[grams[rows]], sizes)]
    return np.repeat(rows, sizes), sources


def _group_spans(
    pairs: _Pairs, at_word: NDArray[np.int64], num_queries: int, num_spans: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    # Offsets per query, and the spans, ascending in each: one sort of query and span in one number.
    keys = [at_word[rows] * num_spans + spans for rows, spans in pairs]
    joined = np.sort(np.concatenate([np.zeros(0, dtype=np.int64), *keys]))
    queries, spans = np.divmod(joined, max(num_spans, 1))
    return np.searchsorted(queries, np.arange(num_queries + 1)), spans


def _hold_common_alone(
    words: _BatchWords,
    query_words: NDArray[np.int64],
    phrase_words: NDArray[np.int64],
    *,
    common_words: NDArray[np.uint64],
) -> NDArray[np.bool_]:
    # whether a query's phrase holds no word but common ones and marks
    is_mark = (words.flags & (CAN_START | CAN_END)) == 0
    is_rare = ~(np.isin(words.hashes, common_words) | is_mark)
    num_rare_before = np.append(0, np.cumsum(is_rare))
    num_rare = num_rare_before[query_words + phrase_words] - num_rare_before[query_words]
    is_common: NDArray[np.bool_] = (phrase_words > 0) & (num_rare == 0)
    return is_common


def _check_positives(
    labels: BatchLabels,
    words: _BatchWords,
    query_words: NDArray[np.int64],
    phrase_words: NDArray[np.int64],
) -> None:
    # every phrase is equal to the slice that each of its labels points to, and of another document
    rows = np.repeat(np.arange(len(query_words)), np.diff(labels.positive_offsets))
    sources, k = np.divmod(labels.positive_spans, labels.span_mask.shape[1])
    firsts = query_words[rows]
    assert (k + 2 == phrase_words[rows]).all()
    assert (words.documents[firsts] != words.documents[sources]).all()
    assert ((np.diff(labels.positive_offsets) > 0) == labels.is_phrase).all()
    for step in range(int(phrase_words.max(initial=0))):
        inside = k + 2 > step
        assert (words.numbers[firsts[inside] + step] == words.numbers[sources[inside] + step]).all()
