"""What may come next, and how good it is.

A pool, the prefix encoder's scores and the text so far go in; scores of all tokens and phrases come
out. Everything that is added to a phrase is a property of its first word, so it is added to the
scores of words, before they are gathered into scores of phrases.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cog.decoding.candidates import HASH_BASE
from cog.decoding.joins import needs_space, refuses_space
from cog.decoding.plausibility import SURE_TOKENS, get_floor
from cog.decoding.pool import Agreement, Pool
from cog.records import Decoding

FREE_TOKENS = 2  # tokens of agreement that say nothing: " of the"
MAX_CONTEXT_TOKENS = 10  # tokens of agreement that count


@dataclass(frozen=True, slots=True)
class TextEnd:
    """Where a text stands when something is chosen.

    :param token_ids: Its tokens, of the prefix too.
    :param num_written: Number of those that were written.
    :param tail: Its last bytes.
    :param blocked: Words of the pool that may not be copied; None if all may. *Shape:*
        ``(num_words,)``
    """

    token_ids: Sequence[int]
    num_written: int
    tail: bytes
    blocked: NDArray[np.bool_] | None = None


@dataclass(frozen=True, slots=True)
class Choices:
    """The scores of all that may come next.

    :param token_logits: Of the vocabulary; minus infinity where a token may not be chosen. *Shape:*
        ``(vocab_size,)``
    :param phrase_scores: Of the pool's phrases, likewise. *Shape:* ``(num_phrases,)``
    :param agreement: Where the text's end stands in the pool.
    """

    token_logits: Tensor
    phrase_scores: Tensor
    agreement: Agreement


def score_choices(
    pool: Pool,
    token_logits: Tensor,
    word_scores: tuple[Tensor, Tensor] | None,
    *,
    end: TextEnd,
    decoding: Decoding,
    batch_phrases: int,
) -> Choices:
    """Score all that may come next.

    The score of a phrase is ``q_start · S + q_end · E`` (CoG, eq. 1 and 2). Differs from the paper:
    added are ``phrase_bias``, ``first_token_weight`` times the log-probability of its first token,
    ``relevance_weight`` times the similarity of its document beyond ``relevance_level``, and
    ``context_weight`` for each token of agreement before it. With the paper's settings all of these
    are 0, and nothing is left out but phrases that would be glued to the word before, or leave a
    gap.

    :param pool: What may be copied.
    :param token_logits: Of the prefix encoder. *Shape:* ``(vocab_size,)``
    :param word_scores: Start and end scores of the words that begin and end a phrase; None if
        nothing is copied. *Shape:* ``(num_begins,)`` and ``(num_ends,)``
    :param end: Where the text stands.
    :param decoding: The settings.
    :param batch_phrases: Number of phrases that a training batch held.
    :returns: The scores, before temperature.
    """
    places = _Places.find(pool, end, decoding, device=token_logits.device)
    tokens, is_implausible = token_logits, None
    if decoding.is_verified:
        is_implausible = _find_implausible(token_logits, places, decoding)
        tokens = tokens.masked_fill(is_implausible, -torch.inf)
    if word_scores is None or not len(pool.phrases):
        return Choices(tokens, token_logits.new_zeros(0), places.agreement)
    bonus = decoding.context_weight * (places.num_tokens - FREE_TOKENS)
    starts = word_scores[0] + _weigh_beginnings(pool, token_logits, decoding, batch_phrases)
    starts[places.begins] += bonus[places.is_begin]
    is_out = ~pool.has_space if needs_space(end.tail) else None
    if refuses_space(end.tail):
        is_out = pool.has_space
    if is_out is not None:
        starts.masked_fill_(is_out, -torch.inf)
    if is_implausible is not None:
        starts.masked_fill_(is_implausible[pool.first_tokens], -torch.inf)
    # where the next word begins no phrase, the evidence counts for its token
    raised = torch.zeros_like(tokens)
    raised.scatter_reduce_(0, places.tokens[~places.is_begin], bonus[~places.is_begin], "amax")
    scores = pool.phrases.score(starts, word_scores[1])
    if end.blocked is not None:
        scores = _leave_out_blocked(pool, scores, end.blocked)
    if decoding.max_verbatim_words:
        scores = _limit_runs(pool, scores, end=end, max_words=decoding.max_verbatim_words)
    return Choices(tokens + raised, scores, places.agreement)


def _weigh_beginnings(
    pool: Pool, token_logits: Tensor, decoding: Decoding, batch_phrases: int
) -> Tensor:
    # what is added to the words that begin a phrase. *Shape:* ``(num_begins,)``
    bias = decoding.phrase_bias
    if decoding.pool_bias:
        bias -= log(len(pool.phrases) / batch_phrases)
    added = token_logits.new_full(pool.first_tokens.shape, bias)
    if decoding.first_token_weight:
        log_probabilities = token_logits[pool.first_tokens] - token_logits.logsumexp(0)
        added += decoding.first_token_weight * log_probabilities
    if decoding.relevance_weight:
        similarities = torch.from_numpy(pool.similarities).to(added.device)
        beyond = similarities[pool.phrases.begin_words] - decoding.relevance_level
        added += decoding.relevance_weight * beyond
    return added


@dataclass(frozen=True, slots=True)
class _Places:
    # where the text's end stands in the pool, and which token follows there
    agreement: Agreement
    num_tokens: Tensor  # (num_places,) float32
    tokens: Tensor  # (num_places,) first token of the word that follows
    is_begin: Tensor  # (num_places,) whether that word begins a phrase
    begins: Tensor  # (num_true,) positions in begin_words of those that do

    @classmethod
    def find(
        cls, pool: Pool, end: TextEnd, decoding: Decoding, *, device: torch.device
    ) -> "_Places":
        wanted = MAX_CONTEXT_TOKENS if decoding.context_weight or decoding.trust else 0
        agreement = pool.find_agreement(end.token_ids[-wanted:] if wanted else ()).beyond(
            FREE_TOKENS
        )
        words = torch.from_numpy(agreement.words).to(device)
        begin_words = pool.phrases.begin_words
        position = torch.searchsorted(begin_words, words)
        is_begin = torch.zeros_like(words, dtype=torch.bool)
        if len(begin_words):
            position.clamp_(max=len(begin_words) - 1)
            is_begin = begin_words[position] == words
        tokens = pool.chunks.token_ids[pool.chunks.word_tokens[agreement.words, 0]]
        return cls(
            agreement,
            torch.from_numpy(agreement.num_tokens).to(device).float(),
            torch.from_numpy(tokens.astype(np.int64)).to(device),
            is_begin,
            position[is_begin],
        )


def _find_implausible(logits: Tensor, places: _Places, decoding: Decoding) -> Tensor:
    # the tokens that are too unlikely; one that stands in the index after the same words needs less
    probabilities = logits.softmax(0)
    floor = get_floor(probabilities.unsqueeze(0), decoding)[0]
    is_implausible = probabilities < floor
    if decoding.trust and len(places.tokens):
        beyond = (places.num_tokens - SURE_TOKENS).clamp(min=0.0)
        sure = torch.zeros_like(logits)
        sure.scatter_reduce_(0, places.tokens, beyond, "amax")
        is_implausible &= probabilities < floor * torch.exp(-decoding.trust * sure)
    return is_implausible


def _leave_out_blocked(pool: Pool, scores: Tensor, blocked: NDArray[np.bool_]) -> Tensor:
    phrases = pool.phrases
    before = torch.from_numpy(np.concatenate([[0], np.cumsum(blocked)])).to(scores.device)
    up_to_first = before[phrases.begin_words].index_select(0, phrases.first)
    up_to_last = before[phrases.end_words + 1].index_select(0, phrases.last)
    return scores.masked_fill_(up_to_first != up_to_last, -torch.inf)


def count_run_words(pool: Pool, end: TextEnd) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count the words that the end of what was written shares with what stands before a word.

    :param pool: What may be copied.
    :param end: Where the text stands.
    :returns: Words before which a whole word agrees or more, and how many words do; the prefix does
        not count.
    """
    if not end.num_written:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    agreement = pool.find_agreement(end.token_ids[-end.num_written :])
    begins = pool.chunks.word_tokens[:, 0]
    run_begins = begins[agreement.words] - agreement.num_tokens
    num_words = agreement.words - np.searchsorted(begins, run_begins, side="left")
    is_run = num_words > 0
    return agreement.words[is_run], num_words[is_run]


def count_room(pool: Pool, word: int, end: TextEnd, *, max_words: int) -> int:
    """Count the words that may be copied from a word on before a run is too long.

    :param pool: What may be copied.
    :param word: The word.
    :param end: Where the text stands.
    :param max_words: Number of words that a run may have, wherever it stands.
    :returns: The count.
    """
    hashes = pool.chunks.word_hashes
    words, num_words = count_run_words(pool, end)
    for count in range(min(max_words, pool.num_words - word)):
        is_same = words + count < pool.run_ends[words]
        words, num_words = words[is_same], num_words[is_same]
        is_same = hashes[words + count] == hashes[word + count]
        words, num_words = words[is_same], num_words[is_same]
        if (num_words + count >= max_words).any():
            return count
    return max_words


def _limit_runs(pool: Pool, scores: Tensor, *, end: TextEnd, max_words: int) -> Tensor:
    # no phrase makes a run of more words than allowed, wherever in the pool the run stands
    phrases = pool.phrases
    num_left = np.full(pool.num_words, max_words, dtype=np.int64)
    words, num_words = count_run_words(pool, end)
    begins = phrases.begin_words.cpu().numpy()
    for count in np.unique(num_words).tolist():
        room = max(0, max_words - count)
        twins = _find_twins(pool, words[num_words == count], begins, num_words=room + 1)
        num_left[twins] = np.minimum(num_left[twins], room)
    room_ends = torch.from_numpy(num_left[begins] + begins).to(scores.device)
    is_too_long = phrases.end_words.index_select(0, phrases.last) >= room_ends.index_select(
        0, phrases.first
    )
    return scores.masked_fill_(is_too_long, -torch.inf)


def _find_twins(
    pool: Pool, words: NDArray[np.int64], begins: NDArray[np.int64], *, num_words: int
) -> NDArray[np.int64]:
    # those of some words from which on some words are the same as from one of others on
    hashes = pool.chunks.word_hashes
    words = words[words + num_words <= pool.run_ends[words]]
    begins = begins[begins + num_words <= pool.run_ends[begins]]
    keys = [np.zeros(len(each), dtype=np.uint64) for each in (words, begins)]
    for count in range(num_words):
        keys = [
            key * HASH_BASE + (hashes[each + count] ^ hashes[each + count] >> np.uint64(31))
            for key, each in zip(keys, (words, begins), strict=True)
        ]
        is_alive = np.isin(keys[1], keys[0])
        begins, keys[1] = begins[is_alive], keys[1][is_alive]
    return begins
