"""CoG's own likelihood of text: a prefix and a reference go in, a probability comes out.

The paper leaves it out, because its next choice is no next token. It is well defined all the same:
the probability that what is written begins with the reference's tokens is the sum over every way to
cut them into phrases and vocabulary tokens, and a forward pass over positions adds it up exactly.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cog.decoding.choices import Choices, TextEnd, score_choices
from cog.decoding.generator import CopyGenerator
from cog.decoding.joins import extend_tail
from cog.decoding.pool import Pool
from cog.decoding.request import Request
from cog.decoding.scoring import Query
from cog.records import OFF

STATES_PER_BLOCK = 16  # positions scored at once; bounds memory to one block of word scores


@dataclass(frozen=True, slots=True)
class ReferenceLikelihood:
    """How likely a reference is: natural logarithms."""

    log_probability: float  # over vocabulary and phrases, summed over all segmentations
    token_log_probability: float  # of the vocabulary alone, as if nothing could be copied


@dataclass(frozen=True, slots=True)
class Step:
    """With what a segmentation may go on from a position: the reference's own token, or phrases."""

    token: float  # its log-probability
    token_alone: float  # the same as if there were no phrases
    ends: NDArray[np.int64]  # (num_phrases,) where each leads, the reference's end at most
    phrases: NDArray[np.float64]  # (num_phrases,) their log-probabilities


def sum_segmentations(steps: Sequence[Step]) -> float:
    """Add up the probabilities of all segmentations, by a forward pass over positions.

    Gives the natural logarithm of the sum.
    """
    forward = np.full(len(steps) + 1, -np.inf)
    forward[0] = 0.0
    for position, step in enumerate(steps):
        reached = forward[position]
        forward[position + 1] = np.logaddexp(forward[position + 1], reached + step.token)
        np.logaddexp.at(forward, step.ends, reached + step.phrases)
    return float(forward[-1])


class PhraseMatcher:
    """Finds the phrases of a pool that a text goes on with."""

    def __init__(self, pool: Pool) -> None:
        chunks, phrases = pool.chunks, pool.phrases
        firsts = phrases.begin_words[phrases.first].cpu().numpy()
        lasts = phrases.end_words[phrases.last].cpu().numpy()
        self._token_ids = chunks.token_ids
        self._begins = chunks.word_tokens[firsts, 0]
        self._lengths = chunks.word_tokens[lasts, 1] - self._begins
        first_tokens = self._token_ids[self._begins]
        self._order = np.argsort(first_tokens, kind="stable")
        self._sorted_tokens = first_tokens[self._order]

    def find(self, rest: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Find phrases that begin a text, or that it begins, and how much of it each covers.

        A phrase longer than the text counts if its first tokens are the text: generation cuts it
        there.
        """
        low = np.searchsorted(self._sorted_tokens, rest[0], side="left")
        high = np.searchsorted(self._sorted_tokens, rest[0], side="right")
        alive = self._order[low:high]
        found = []
        for covered in range(1, len(rest) + 1):
            is_over = self._lengths[alive] == covered
            if covered == len(rest):
                is_over[:] = True
            found.append((alive[is_over], np.full(int(is_over.sum()), covered, dtype=np.int64)))
            alive = alive[~is_over]
            if not len(alive):
                break
            alive = alive[self._token_ids[self._begins[alive] + covered] == rest[covered]]
        return np.concatenate([each for each, _ in found]), np.concatenate([n for _, n in found])


@torch.inference_mode()
def score_reference(
    generator: CopyGenerator,
    request: Request,
    token_ids: NDArray[np.int32],
    *,
    pool: Pool | None = None,
) -> ReferenceLikelihood:
    """The exact probability that generation from a prefix begins with a reference.

    Tokens are the prefix encoder's, one at least: a text that other tokens spell too is counted as
    these tokens only. Phrases are found in the pool, if it is at hand, else in the chunks that
    generation would retrieve. Of the decoding, what is added to scores matters, and
    ``max_new_tokens`` (how much of a long prefix is read), since nothing is drawn. Nothing is
    verified, no name is guarded, and what may be copied once only does not count.
    """
    if not len(token_ids):
        raise ValueError("a reference needs at least one token")
    request = generator.adapt(request)
    if pool is None:
        pool = generator.pools.get_pool(request)[0]
    decoding = replace(request.decoding, verify=OFF, far_ratio=0.0, max_verbatim_words=0)
    encoder = generator.model.prefix_encoder
    length = max(request.decoding.max_new_tokens, len(token_ids))
    placed = replace(request, decoding=replace(request.decoding, max_new_tokens=length))
    prefix = generator.prefix_ids(placed)
    read = [prefix + token_ids[:-1].tolist()]
    cache = encoder.new_cache(batch=1, capacity=len(read[0]))
    states = encoder.append(cache, read)[len(prefix) - 1 :]  # one per token of the reference
    unwritable = generator.model.splitter.list_unwritable(encoder.vocab_size)
    left_out = torch.from_numpy(unwritable).to(states.device)
    matcher = PhraseMatcher(pool)
    steps: list[Step] = []
    for begin in range(0, len(token_ids), STATES_PER_BLOCK):
        block = states[begin : begin + STATES_PER_BLOCK]
        logits = encoder.token_logits(block)
        logits[:, left_out] = -torch.inf
        query = Query(pool.scorer, *encoder.phrase_queries(block))
        for k in range(len(block)):
            position = begin + k
            before = generator.model.splitter.decode(token_ids[max(0, position - 4) : position])
            choices = score_choices(
                pool,
                logits[k],
                partial(query.score, k),
                end=TextEnd(
                    read[0][: len(prefix) + position],
                    position,
                    extend_tail(request.prefix.encode(), before),
                ),
                decoding=decoding,
                batch_phrases=generator.model.config.batch_phrases,
            )
            steps.append(_make_step(logits[k], choices, token_ids[position:], position, matcher))
    alone = sum(step.token_alone for step in steps)
    return ReferenceLikelihood(sum_segmentations(steps), alone)


def _make_step(
    logits: Tensor, choices: Choices, rest: NDArray[np.int32], position: int, matcher: PhraseMatcher
) -> Step:
    tokens, scores = choices.token_logits.double(), choices.phrase_scores.double()
    of_tokens = tokens.logsumexp(dim=0)
    total = torch.logaddexp(of_tokens, scores.logsumexp(dim=0)) if len(scores) else of_tokens
    alone = logits.double()
    found, covered = matcher.find(rest)
    chosen = scores[torch.from_numpy(found).to(scores.device)] - total
    own = int(rest[0])
    token, token_alone = tokens[own] - total, alone[own] - alone.logsumexp(dim=0)
    return Step(float(token), float(token_alone), position + covered, chosen.cpu().numpy())
