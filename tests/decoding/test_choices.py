"""What may come next, against a plain loop over tokens and phrases, on random pools."""

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from cog.decoding.choices import Choices, ScoreWords, TextEnd, score_choices
from cog.decoding.pool import Pool
from cog.decoding.scoring import Chosen, Query
from cog.decoding.verbatim import count_room, count_run_words
from cog.records import Decoding
from tests.decoding.plain import fits, plain_floor
from tests.decoding.synthetic import (
    DIM,
    PAPER,
    TOKENS,
    lay_out,
    make_chunks,
    make_pool,
    plain_agreement,
    plain_phrases,
)

LENGTHS = (14, 9, 20, 5, 11, 11)
BATCH_PHRASES = 1000
ALL: dict[str, Any] = {
    "phrase_bias": 1.5,
    "pool_bias": True,
    "min_bits": 9.0,
    "first_token_weight": 0.7,
    "relevance_weight": 3.0,
    "relevance_level": 0.4,
    "context_weight": 0.8,
    "trust": 0.6,
    "verify": "absolute",
    "verify_threshold": 0.04,
    "max_verbatim_words": 6,
    "far_ratio": 0.1,
}
SETTINGS: list[dict[str, Any]] = [
    {},
    {"phrase_bias": -2.5},
    {"phrase_bias": 1.0, "pool_bias": True},
    {"first_token_weight": 0.7},
    {"relevance_weight": 3.0, "relevance_level": 0.4},
    {"context_weight": 0.8},
    {"context_weight": 0.8, "min_bits": 13.0},
    {"verify": "absolute", "verify_threshold": 0.04},
    {"verify": "relative", "verify_threshold": 0.1, "trust": 0.6},
    {"verify": "entropy", "verify_threshold": 0.05, "trust": 2.0, "context_weight": 1.0},
    {"max_verbatim_words": 3},
    {"far_ratio": 0.5, "relevance_level": 0.6},
    {"far_ratio": 0.3, "relevance_level": 1.0, "context_weight": 0.8, "trust": 0.6},
    ALL,
]


class Case:
    """A random pool, and a text that ends as a place of it does."""

    def __init__(self, seed: int, decoding: Decoding) -> None:
        random = np.random.default_rng(seed)
        chunks, _ = make_chunks(seed, lengths=LENGTHS, gap=seed % 2)
        self.similarities = dict(enumerate(random.random(len(LENGTHS)).tolist()))
        self.decoding = decoding
        self.pool = make_pool(chunks, decoding, similarities=self.similarities)
        noise = torch.Generator().manual_seed(seed)
        self.logits = torch.randn(len(TOKENS), generator=noise) * 2
        self.logits[3] = -torch.inf
        self.queries = torch.randn(2, 1, DIM, generator=noise)
        place = int(random.integers(2, len(chunks.token_ids)))
        ids = chunks.token_ids[max(0, place - 14) : place].tolist()
        tail = (
            "".join(TOKENS[i] for i in ids) if seed % 3 else ["mill (", "mill ", ""][seed % 9 // 3]
        )
        blocked = random.random(self.pool.num_words) < 0.3 if seed % 4 == 0 else None
        copied = blocked & (random.random(self.pool.num_words) < 0.5) if seed % 8 == 0 else None
        num_written = int(random.integers(0, len(ids) + 1))
        repeats = random.integers(0, len(TOKENS), seed % 3).tolist()
        self.end = TextEnd(
            ids, num_written, tail.encode()[-4:], blocked, copied, repeats, seed % 6 == 5
        )

    def score(self) -> Choices:
        return score_choices(
            self.pool,
            self.logits,
            partial(Query(self.pool.scorer, *self.queries).score, 0),
            end=self.end,
            decoding=self.decoding,
            batch_phrases=BATCH_PHRASES,
        )


def plain_run_words(pool: Pool, end: TextEnd) -> dict[int, int]:
    """Whole words before each word that what was written ends with."""
    chunks, found = pool.chunks, {}
    written = list(end.token_ids[len(end.token_ids) - end.num_written :])
    agreed = plain_agreement(chunks, written)
    for word, position in enumerate(chunks.word_tokens[:, 0].tolist()):
        begin, count = position - agreed.get(position, 0), 0
        while word - 1 - count >= 0 and chunks.word_tokens[word - 1 - count, 0] >= begin:
            count += 1
        if count:
            found[word] = count
    return found


def plain_rooms(pool: Pool, end: TextEnd, *, max_words: int) -> list[int]:
    """Words that may be copied from each word on before some place has too long a run."""
    runs, ends = plain_run_words(pool, end), pool.run_ends.tolist()
    hashes, rooms = pool.chunks.word_hashes.tolist(), []
    for first in range(pool.num_words):
        room = max_words
        for word, count in runs.items():
            same = 0
            while (
                same < max_words
                and word + same < ends[word]
                and first + same < pool.num_words
                and hashes[word + same] == hashes[first + same]
            ):
                same += 1
                if count + same > max_words:
                    room = min(room, same - 1)
        rooms.append(room)
    return rooms


def plain_choices(  # noqa: C901 - the definition in one place
    case: Case, pool: Pool, decoding: Decoding, end: TextEnd
) -> tuple[list[float], dict[tuple[int, int], float]]:
    """Scores of tokens, and of phrases by first and last word."""
    chunks, logits = pool.chunks, case.logits.double()
    probabilities = logits.softmax(0)
    floor = plain_floor(probabilities, decoding.verify, decoding.verify_threshold)
    token_at, begin_of = chunks.token_ids.tolist(), chunks.word_tokens[:, 0].tolist()
    agreed = plain_evidence(pool, end)
    spans = plain_phrases(
        chunks, min_words=2, max_words=4, word_bits=pool.word_bits, min_bits=decoding.min_bits
    )

    def is_plausible(token: int) -> bool:
        sure = max([0, *(n - 3 for p, n in agreed.items() if token_at[p] == token)])
        return bool(probabilities[token] >= floor * math.exp(-decoding.trust * sure))

    nearest = max(plain_similarity(case, pool, word) for word in range(pool.num_words))
    bias = decoding.phrase_bias
    if decoding.pool_bias:
        bias -= math.log(len(spans) / BATCH_PHRASES)
    rooms = plain_rooms(pool, end, max_words=decoding.max_verbatim_words or 99)
    written = end.tail.decode()
    start_query, end_query = (query[0].double().numpy() for query in case.queries)
    scores = {}
    for first, last in spans:
        score = bias
        score += start_query @ (chunks.start_vectors[first] * float(chunks.start_scales[first]))
        score += end_query @ (chunks.end_vectors[last] * float(chunks.end_scales[last]))
        token, place = token_at[begin_of[first]], begin_of[first]
        if decoding.first_token_weight:
            score += decoding.first_token_weight * math.log(max(float(probabilities[token]), 1e-99))
        similarity, level = plain_similarity(case, pool, first), decoding.relevance_level
        score += decoding.relevance_weight * (similarity - level)
        least = decoding.far_ratio * max(0.0, level - nearest) * float(probabilities.max())
        least *= math.exp(-decoding.trust * max(0, agreed.get(place, 0) - 3))
        score += decoding.context_weight * (agreed.get(place, 2) - 2)
        if (
            not fits(written, spell(pool, first))
            or not is_plausible(token)
            or end.needs_token
            or probabilities[token] < least
            or (end.blocked is not None and end.blocked[first : last + 1].any())
        ):
            score = -math.inf
        scores[(first, last)] = score
    begins = {begin_of[first] for (first, _), score in scores.items() if score > -math.inf}
    tokens = []
    for token, logit in enumerate(logits.tolist()):
        evidence = [
            decoding.context_weight * (n - 2)
            for p, n in agreed.items()
            if token_at[p] == token and p not in begins
        ]
        is_open = is_plausible(token) and token not in end.repeats
        tokens.append(logit + max([0.0, *evidence]) if is_open else -math.inf)
    too_long = [(first, last) for first, last in spans if last + 1 - first > rooms[first]]
    scores |= dict.fromkeys(too_long, -math.inf)
    is_empty = decoding.is_verified and max([*tokens, *scores.values()]) == -math.inf
    return plain_rest(case, agreed, token_at) if is_empty else tokens, scores


def spell(pool: Pool, word: int) -> str:
    """A word as its tokens are spelled."""
    tokens = slice(*pool.chunks.word_tokens[word])
    return "".join(TOKENS[i] for i in pool.chunks.token_ids[tokens])


def plain_similarity(case: Case, pool: Pool, word: int) -> float:
    """The similarity of a word's document: that of its nearest chunk."""
    chunk = np.searchsorted(pool.chunks.word_offsets, word, "right") - 1
    document = int(pool.chunks.document_ordinals[chunk])
    return max(case.similarities[k] for k in range(len(LENGTHS)) if k // 2 == document)


def plain_rest(case: Case, agreed: dict[int, float], token_at: list[int]) -> list[float]:
    """Where nothing is left, tokens that are no passage again, judged among themselves."""
    logits, decoding = case.logits.double(), case.decoding
    logits[case.end.repeats] = -math.inf
    probabilities = logits.softmax(0)
    floor = plain_floor(probabilities, decoding.verify, decoding.verify_threshold)
    tokens = []
    for token, logit in enumerate(logits.tolist()):
        sure = max([0, *(n - 3 for p, n in agreed.items() if token_at[p] == token)])
        is_open = bool(probabilities[token] >= floor * math.exp(-decoding.trust * sure))
        tokens.append(logit if is_open else -math.inf)
    return tokens


def plain_evidence(pool: Pool, end: TextEnd) -> dict[int, float]:
    """What each place is worth where three tokens or more are what the text ends with."""
    token_at = pool.chunks.token_ids.tolist()
    word_of = {
        p: word for word, bounds in enumerate(pool.chunks.word_tokens) for p in range(*bounds)
    }
    found = plain_agreement(pool.chunks, list(end.token_ids[-10:]))
    copied = np.zeros(pool.num_words, dtype=bool) if end.copied is None else end.copied
    found = {p: n for p, n in found.items() if n > 2 and not copied[word_of[p]]}
    worth = {}
    for place, n in found.items():
        as_far = [p for p, other in found.items() if other >= n]
        alike = sum(token_at[p] == token_at[place] for p in as_far) if n > 3 else 1
        is_usual = alike > 1 and 2 * alike > len(as_far)
        if is_usual or end.blocked is None or not end.blocked[word_of[place]]:
            worth[place] = n + 2 * max(0, n - 3) * math.log2(alike) * alike / len(as_far)
    return worth


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda each: "-".join(each) or "paper")
@pytest.mark.parametrize("seed", range(18))
def test_scores_equal_a_plain_loop(settings: dict[str, Any], seed: int) -> None:
    case = Case(seed, replace(PAPER, **settings))
    found = case.score()
    tokens, scores = plain_choices(case, case.pool, case.decoding, case.end)
    np.testing.assert_allclose(found.token_logits.numpy(), tokens, rtol=1e-4, atol=1e-4)
    wanted = [scores[case.pool.phrases.span(i)] for i in range(len(case.pool.phrases))]
    assert len(wanted) == len(scores)
    is_open = np.isfinite(wanted) & (np.array(wanted) > -50.0)  # the first token may be a special
    np.testing.assert_allclose(
        found.phrase_scores.numpy()[is_open], np.array(wanted)[is_open], rtol=1e-4, atol=1e-4
    )
    assert (found.phrase_scores.numpy()[~is_open] < -50.0).all()


@pytest.mark.parametrize("seed", range(18))
def test_words_of_a_run_equal_a_plain_count(seed: int) -> None:
    case = Case(seed, PAPER)
    words, counts = count_run_words(case.pool, case.end.written_ids)
    found = dict(zip(words.tolist(), counts.tolist(), strict=True))
    assert found == plain_run_words(case.pool, case.end)


@pytest.mark.parametrize("max_words", [1, 2, 4, 6])
def test_room_of_a_draft_equals_a_plain_count(max_words: int) -> None:
    for seed in range(18):
        case = Case(seed, PAPER)
        rooms = plain_rooms(case.pool, case.end, max_words=max_words)
        for first, room in enumerate(rooms):
            found = count_room(
                case.pool, first, token_ids=case.end.written_ids, max_words=max_words
            )
            assert found == room


def scored(pool: Pool, start: float = 0.0) -> ScoreWords:
    """The same score for all words that begin a phrase, and 0 for those that end one."""
    counts = len(pool.phrases.begin_words), len(pool.phrases.end_words)

    def score(chosen: Chosen) -> tuple[torch.Tensor, torch.Tensor]:
        first, last = (
            count if some is None else len(some) for count, some in zip(counts, chosen, strict=True)
        )
        return torch.full((first,), start), torch.zeros(last)

    return score


@pytest.mark.parametrize("share", [0.0, 1.1])
@pytest.mark.parametrize("seed", range(12))
def test_scores_are_the_same_however_many_words_are_scored(
    share: float, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(seed, replace(PAPER, **ALL))
    wanted = case.score()
    monkeypatch.setattr("cog.decoding.choices.FEW", share)
    found = case.score()
    torch.testing.assert_close(found.phrase_scores, wanted.phrase_scores)
    torch.testing.assert_close(found.token_logits, wanted.token_logits)


def pool_end(written: list[int], blocked: NDArray[np.bool_] | None = None) -> TextEnd:
    return TextEnd(written, len(written), b"x", blocked)


def test_context_raises_the_phrase_or_the_token_that_followed() -> None:
    before = [" the", " mill", " (a", " mist"]  # six tokens
    pool = make_pool(lay_out([[[*before, " river", " Ada"]], [[*before, ",", " the", " the"]]]))
    decoding = replace(PAPER, context_weight=2.0)
    written = pool.chunks.token_ids[:6].tolist()
    logits = torch.zeros(len(TOKENS))
    found = score_choices(
        pool, logits, scored(pool), end=pool_end(written), decoding=decoding, batch_phrases=1
    )
    raised = [TOKENS[i] for i in found.token_logits.nonzero().squeeze(1).tolist()]
    assert raised == [","]  # the comma begins no phrase, so that it is a token's turn
    assert float(found.token_logits.max()) == 2.0 * 4
    firsts = {pool.phrases.span(i)[0] for i in found.phrase_scores.nonzero().squeeze(1).tolist()}
    assert firsts == {4}
    # each of two places that differ: half of the places that agree as far, alone
    begins = pool.begins.tolist()
    assert found.agreement.at(begins[4]) == found.agreement.at(begins[10]) == 6


@pytest.mark.parametrize(
    ("blocked", "copied", "raised"),
    [
        ([4, 10], [], " ri"),  # a guarded name that two places have is the collection's own
        ([4, 10], [10], ""),  # and one that one place has is not
        ([4, 10], [4, 10], ""),  # what was copied is no evidence for saying it again
    ],
)
def test_what_several_places_say_is_written_where_it_may_not_be_copied(
    blocked: list[int], copied: list[int], raised: str
) -> None:
    before = [" the", " mill", " (a", " mist"]
    pool = make_pool(lay_out([[[*before, " river", " Ada"]], [[*before, " river", " the"]]]))
    masks = [np.isin(np.arange(pool.num_words), words) for words in (blocked, copied)]
    ids = pool.chunks.token_ids[:6].tolist()
    found = score_choices(
        pool,
        torch.zeros(len(TOKENS)),
        scored(pool),
        end=TextEnd(ids, 6, b"x", *masks),
        decoding=replace(PAPER, context_weight=2.0),
        batch_phrases=1,
    )
    named = [TOKENS[i] for i in found.token_logits.nonzero().squeeze(1).tolist()]
    assert named == ([raised] if raised else [])


def test_without_phrases_the_vocabulary_is_left() -> None:
    pool = make_pool(make_chunks(0, lengths=())[0])
    logits = torch.arange(4.0)
    found = score_choices(
        pool,
        logits,
        scored(pool),
        end=pool_end([1]),
        decoding=replace(PAPER, **ALL),
        batch_phrases=1,
    )
    assert not len(found.phrase_scores)
    assert found.token_logits[3] == 3.0


@pytest.mark.parametrize("rule", ["absolute", "relative", "entropy"])
@pytest.mark.parametrize("lengths", [(), LENGTHS])
def test_where_only_a_passage_again_is_plausible_the_next_best_is_left(
    rule: str, lengths: tuple[int, ...]
) -> None:
    pool = make_pool(make_chunks(0, lengths=lengths)[0])
    logits = torch.full((len(TOKENS),), -20.0)
    logits[2], logits[5] = 20.0, -10.0
    for repeats in ([2], [2, 2]):
        found = score_choices(
            pool,
            logits,
            scored(pool, -torch.inf),
            end=TextEnd([1, 2], 2, b"x", repeats=repeats),
            decoding=replace(PAPER, verify=rule, verify_threshold=0.01),
            batch_phrases=1,
        )
        assert torch.isneginf(found.phrase_scores).all()
        assert found.token_logits.argmax() == 5
        assert found.token_logits.isfinite().sum() == 1
