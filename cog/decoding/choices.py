"""What may come next, and how good it is.

A pool, the prefix encoder's scores and the text so far go in; scores of all tokens and phrases come
out. Everything that is added to a phrase is a property of its first word, so it is added to the
scores of words, before they are gathered into scores of phrases.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import log

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cog.decoding.candidates import Phrases, number_places
from cog.decoding.joins import needs_space, refuses_space
from cog.decoding.plausibility import SURE_TOKENS, find_least_ratio, get_floor
from cog.decoding.pool import Agreement, Pool
from cog.decoding.scoring import ALL, Chosen
from cog.decoding.verbatim import limit_runs
from cog.records import Decoding

FREE_TOKENS = 2  # tokens of agreement that say nothing: " of the"
MAX_CONTEXT_TOKENS = 10  # tokens of agreement that count
ALIKE_WEIGHT = 2.0  # of places that go on alike
USUAL_SHARE = 0.5  # of the places that agree as far: more than that, and several, is the usual
FEW = 0.5  # share of the phrases that are scored alone, where no more may be chosen

# scores of some words that begin and that end a phrase, ``(num_begins,)`` and ``(num_ends,)``
ScoreWords = Callable[[Chosen], tuple[Tensor, Tensor]]


@dataclass(frozen=True, slots=True)
class TextEnd:
    """Where a text stands when something is chosen.

    :param token_ids: Its tokens, of the prefix too.
    :param num_written: Number of those that were written.
    :param tail: Its last bytes.
    :param blocked: Words of the pool that may not be copied; None if all may. *Shape:*
        ``(num_words,)``
    :param copied: Those of them that were copied. *Shape:* ``(num_words,)``
    :param repeats: Tokens of the vocabulary that would write a passage again.
    :param needs_token: Whether no phrase may be chosen.
    """

    token_ids: Sequence[int]
    num_written: int
    tail: bytes
    blocked: NDArray[np.bool_] | None = None
    copied: NDArray[np.bool_] | None = None
    repeats: Sequence[int] = ()
    needs_token: bool = False

    @property
    def written_ids(self) -> Sequence[int]:
        """The tokens that were written."""
        return self.token_ids[len(self.token_ids) - self.num_written :]


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
    score_words: ScoreWords,
    *,
    end: TextEnd,
    decoding: Decoding,
    batch_phrases: int,
) -> Choices:
    """Score all that may come next, before temperature.

    The score of a phrase is ``q_start · S + q_end · E`` (CoG, eq. 1 and 2). Differs from the paper:
    added are ``phrase_bias``, ``first_token_weight`` times the log-probability of its first token,
    ``relevance_weight`` times the similarity of its document beyond ``relevance_level``, and
    ``context_weight`` for each token of agreement before it, more of them where several places go
    on alike; where no phrase may begin with the token that follows there, that token has it. With
    the paper's settings all of these are 0, and nothing is left out but phrases that would be glued
    to the word before, or leave a gap.

    Most words begin with a token that verification refuses: of the pool's words only those are
    scored that begin or end a phrase that may be chosen. ``batch_phrases`` is the number of
    phrases of a training batch.
    """
    places = _Places.find(pool, end, decoding, device=token_logits.device)
    tokens, is_implausible = token_logits, None
    if decoding.is_verified:
        is_implausible = _find_implausible(token_logits, places, decoding)
        tokens = tokens.masked_fill(is_implausible, -torch.inf)
    if end.repeats:
        tokens = _leave_out_tokens(tokens, end.repeats)
    if not len(pool.phrases):
        choices = Choices(tokens, token_logits.new_zeros(0), places.agreement)
        return _leave_some(choices, token_logits, places, end, decoding)
    bonus = decoding.context_weight * (places.num_tokens - FREE_TOKENS)
    added = _weigh_beginnings(pool, token_logits, decoding, batch_phrases)
    added[places.begins[places.is_begin]] += bonus[places.is_begin]
    is_barred = _find_barred(pool, token_logits, is_implausible, places, end, decoding)
    added.masked_fill_(is_barred, -torch.inf)
    listed = (~is_barred).index_select(0, pool.phrases.first).nonzero().squeeze(1)
    if end.blocked is not None:
        listed = _leave_out_blocked(pool.phrases, listed, end.blocked)
    scores = _score_listed(pool.phrases, listed, score_words, added)
    if len(places.tokens):
        tokens = _raise_tokens(tokens, places, bonus, is_open=pool.phrases.find_open(scores))
    if decoding.max_verbatim_words:
        scores = limit_runs(
            pool, scores, token_ids=end.written_ids, max_words=decoding.max_verbatim_words
        )
    choices = Choices(tokens, scores, places.agreement)
    return _leave_some(choices, token_logits, places, end, decoding)


def _leave_some(
    choices: Choices, token_logits: Tensor, places: "_Places", end: TextEnd, decoding: Decoding
) -> Choices:
    # where all that is plausible would write a passage again, the rest is judged without it
    if not (end.repeats and decoding.is_verified):
        return choices
    if bool((torch.cat([choices.token_logits, choices.phrase_scores]) > -torch.inf).any()):
        return choices
    rest = _leave_out_tokens(token_logits, end.repeats)
    is_implausible = _find_implausible(rest, places, decoding)
    return replace(choices, token_logits=rest.masked_fill(is_implausible, -torch.inf))


def _leave_out_tokens(logits: Tensor, token_ids: Sequence[int]) -> Tensor:
    return logits.index_fill(0, torch.tensor(token_ids, device=logits.device), -torch.inf)


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
    num_tokens: Tensor  # (num_places,) float32, of agreement
    tokens: Tensor  # (num_places,) the token that follows
    is_begin: Tensor  # (num_places,) whether it is the first of a word that begins a phrase
    begins: Tensor  # (num_places,) its position in begin_words, where it does

    @classmethod
    def find(
        cls, pool: Pool, end: TextEnd, decoding: Decoding, *, device: torch.device
    ) -> "_Places":
        wanted = MAX_CONTEXT_TOKENS if decoding.context_weight or decoding.trust else 0
        agreement = pool.find_agreement(end.token_ids[-wanted:] if wanted else ()).beyond(
            FREE_TOKENS
        )
        agreement, tokens = _weigh_places(pool, agreement, end)
        words = torch.from_numpy(agreement.words).to(device)
        begin_words = pool.phrases.begin_words
        position = torch.searchsorted(begin_words, words)
        is_begin = torch.zeros_like(words, dtype=torch.bool)
        if len(begin_words):
            position.clamp_(max=len(begin_words) - 1)
            at_begin = agreement.positions == pool.begins[agreement.words]
            is_begin = (begin_words[position] == words) & torch.from_numpy(at_begin).to(device)
        return cls(
            agreement,
            torch.from_numpy(agreement.num_tokens).to(device).float(),
            torch.from_numpy(tokens).to(device),
            is_begin,
            position,
        )


def _weigh_places(
    pool: Pool, agreement: Agreement, end: TextEnd
) -> tuple[Agreement, NDArray[np.int64]]:
    # what is known of the next token: places that were not copied, and the token at each. Beyond
    # SURE_TOKENS a token of agreement is worth more where several places go on alike: what a
    # collection always says after some words. More by the logarithm of their number, and by their
    # share of the places that agree as far
    if end.copied is not None:
        agreement = agreement.select(~end.copied[agreement.words])
    depths = agreement.num_tokens
    tokens = pool.chunks.token_ids[agreement.positions].astype(np.int64)
    worth, is_usual = depths.astype(np.float64), np.zeros(len(depths), dtype=bool)
    for depth in np.unique(depths[depths > SURE_TOKENS]).tolist():
        inside = depths >= depth
        _, group, counts = np.unique(tokens[inside], return_inverse=True, return_counts=True)
        is_here = depths[inside] == depth
        alike = counts[group][is_here]
        share = alike / len(group)
        is_usual[depths == depth] = (alike > 1) & (share > USUAL_SHARE)
        worth[depths == depth] += ALIKE_WEIGHT * (depth - SURE_TOKENS) * np.log2(alike) * share
    agreement = replace(agreement, num_tokens=worth)
    if end.blocked is not None:
        # what one document alone says of its subject is no evidence where it may not be copied, nor
        # are digits that some of many numbers have in common
        counts_too = ~end.blocked[agreement.words] | is_usual
        agreement, tokens = agreement.select(counts_too), tokens[counts_too]
    return agreement, tokens


def _raise_tokens(tokens: Tensor, places: _Places, bonus: Tensor, *, is_open: Tensor) -> Tensor:
    # where no phrase may begin with the next word, the evidence counts for its token
    is_told = places.is_begin & is_open[places.begins]
    raised = torch.zeros_like(tokens)
    raised.scatter_reduce_(0, places.tokens[~is_told], bonus[~is_told], "amax")
    return tokens + raised


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


def _find_barred(
    pool: Pool,
    token_logits: Tensor,
    is_implausible: Tensor | None,
    places: _Places,
    end: TextEnd,
    decoding: Decoding,
) -> Tensor:
    # the words that may not begin a phrase here. *Shape:* ``(num_begins,)``
    is_barred = torch.full_like(pool.has_space, end.needs_token)
    if refuses_space(end.tail):
        is_barred |= pool.has_space
    elif needs_space(end.tail):
        is_barred |= ~pool.has_space
    if is_implausible is not None:
        is_barred |= is_implausible[pool.first_tokens]
    ratio = find_least_ratio(pool.nearest, decoding)
    if ratio:  # verification would refuse their first token
        agreed = token_logits.new_zeros(pool.first_tokens.shape)
        agreed[places.begins[places.is_begin]] = places.num_tokens[places.is_begin]
        trust = decoding.trust * (agreed - SURE_TOKENS).clamp(min=0.0)
        is_barred |= token_logits[pool.first_tokens] < token_logits.max() + log(ratio) - trust
    return is_barred


def _leave_out_blocked(phrases: Phrases, listed: Tensor, blocked: NDArray[np.bool_]) -> Tensor:
    # those of some phrases that hold no word that may not be copied
    before = torch.from_numpy(np.concatenate([[0], np.cumsum(blocked)])).to(listed.device)
    firsts, lasts = (each.index_select(0, listed) for each in (phrases.first, phrases.last))
    up_to_first = before.index_select(0, phrases.begin_words.index_select(0, firsts))
    up_to_last = before.index_select(0, phrases.end_words.index_select(0, lasts) + 1)
    return listed[up_to_first == up_to_last]


def _score_listed(
    phrases: Phrases, listed: Tensor, score_words: ScoreWords, added: Tensor
) -> Tensor:
    # scores of phrases, minus infinity of those that are not listed. *Shape:* ``(num_phrases,)``
    if len(listed) > FEW * len(phrases):
        starts, ends = score_words(ALL)
        found = phrases.score(starts + added, ends).index_select(0, listed)
    else:
        firsts, lasts = (each.index_select(0, listed) for each in (phrases.first, phrases.last))
        begins, firsts = number_places(firsts, len(added))
        ends, lasts = number_places(lasts, len(phrases.end_words))
        of_begins, of_ends = score_words((begins, ends))
        found = (of_begins + added.index_select(0, begins)).index_select(0, firsts)
        found += of_ends.index_select(0, lasts)
    return added.new_full((len(phrases),), -torch.inf).scatter_(0, listed, found)
