"""Decoding by definition: a materialised phrase table, no cache, no batch, one loop."""

import math
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch

from cog.decoding.generator import CopyGenerator
from cog.decoding.request import Request
from cog.index.records import GatheredChunks
from cog.model.words import CAN_END
from tests.decoding.synthetic import plain_phrases

NEAR = 1e-4  # what two code paths may round differently, in nats


class PlainPhrase(NamedTuple):
    """A phrase: its text, tokens and vector, how many tokens end each word, which words may end."""

    text: str
    ids: list[int]
    word_ends: list[int]
    can_end: list[bool]
    vector: np.ndarray


class PlainText(NamedTuple):
    """A text, and whether it is whole: it ends where the best choice is too near to call."""

    text: str
    is_whole: bool


def plain_floor(probabilities: torch.Tensor, rule: str, threshold: float) -> float:
    """What each rule asks of a token, written out."""
    best = float(probabilities.max())
    entropy = -sum(p * math.log(p) for p in probabilities.tolist() if p > 0.0)
    floors = {
        "off": 0.0,
        "absolute": threshold,
        "relative": threshold * best,
        "entropy": min(threshold, math.sqrt(threshold) * math.exp(-entropy)),
    }
    return min(floors[rule], best)


def make_table(
    chunks: GatheredChunks, text_of: Callable[[int], str], *, min_words: int = 2, max_words: int = 8
) -> list[PlainPhrase]:
    """Every admissible phrase of some chunks with its vector: what the paper materialises."""
    table = []
    for first, last in plain_phrases(chunks, min_words=min_words, max_words=max_words):
        k = int(np.searchsorted(chunks.word_offsets, first, side="right")) - 1
        begin, end = chunks.word_tokens[first, 0], chunks.word_tokens[last, 1]
        vectors = (
            chunks.start_vectors[first].astype(np.float64) * chunks.start_scales[first],
            chunks.end_vectors[last].astype(np.float64) * chunks.end_scales[last],
        )
        text = text_of(int(chunks.document_ordinals[k]))
        table.append(
            PlainPhrase(
                text[chunks.word_chars[first, 0] : chunks.word_chars[last, 1]],
                chunks.token_ids[begin:end].tolist(),
                (chunks.word_tokens[first : last + 1, 1] - begin).tolist(),
                ((chunks.word_flags[first : last + 1] & CAN_END) != 0).tolist(),
                np.concatenate(vectors),
            )
        )
    return table


def index_table(generator: CopyGenerator, request: Request) -> list[PlainPhrase]:
    """The phrases of the chunks that are retrieved for a request."""
    chunk_ids, _ = generator.pools.search(request)
    chunks = generator.index.gather_chunks(chunk_ids)
    documents = generator.index.get_documents(chunks.document_ordinals.tolist())
    return make_table(chunks, lambda ordinal: documents[ordinal].text)


def plain_greedy(  # noqa: C901 - one loop in one place
    generator: CopyGenerator,
    request: Request,
    table: Sequence[PlainPhrase],
    *,
    key_of: Callable[[int, str], object] = lambda _, text: text,
    has_vocabulary: Callable[[int], bool] = lambda _: True,
) -> PlainText:
    """Write greedily with the paper's settings, and a rule of verification.

    :param generator: Model and index.
    :param request: The prefix; rule, threshold, bias and length.
    :param table: The candidate phrases.
    :param key_of: What counts as one choice, by number and text of a phrase.
    :param has_vocabulary: Whether the vocabulary may be chosen from, by number of phrases that may.
    :returns: The text.
    """
    decoding, splitter = request.decoding, generator.model.splitter
    ids = generator.prefix_ids(request)
    length, end = len(ids), len(ids) + decoding.max_new_tokens

    is_whole, written = True, ""
    while is_whole and len(ids) < end:
        state, logits = look(generator, ids)
        probabilities = logits.softmax(0)
        floor = plain_floor(probabilities, decoding.verify, decoding.verify_threshold)
        is_far = (probabilities / max(floor, 1e-300)).log().abs() > NEAR
        is_far |= probabilities == probabilities.max()  # which stays, whatever the floor
        is_possible = (probabilities >= floor).tolist()
        queries = generator.model.prefix_encoder.phrase_queries(state)
        query = torch.cat(queries, dim=1)[0].double().numpy()
        weights: dict[object, float] = {}
        found: dict[object, PlainPhrase] = {}
        for number, phrase in enumerate(table):
            if is_possible[phrase.ids[0]] and fits(request.prefix + written, phrase.text):
                key, weight = key_of(number, phrase.text), math.exp(query @ phrase.vector)
                weights[key] = weights.get(key, 0.0) + weight
                found[key] = phrase
        if has_vocabulary(len(weights)):
            for token, logit in enumerate(logits.tolist()):
                if is_possible[token]:
                    weights[("token", token)] = math.exp(logit)
                    found[("token", token)] = PlainPhrase("", [token], [], [], query)
        *_, second, best = sorted([0.0, *weights.values()])
        draft = found[max(weights, key=lambda key: weights[key])]
        num_accepted = count_accepted(generator, request, ids, draft.ids[: end - len(ids)])
        is_whole = second < best * math.exp(-NEAR) and bool(is_far.all()) and num_accepted > 0
        if is_whole:
            ids = ids + draft.ids[: count_kept(draft, num_accepted)]
            written = splitter.decode(np.array(ids[length:], int)).decode(errors="replace")
    return PlainText(written, is_whole)


def count_accepted(
    generator: CopyGenerator, request: Request, ids: list[int], drafted: list[int]
) -> int:
    """Number of drafted tokens up to one that is too unlikely; 0 where one is too near to call."""
    rule, threshold = request.decoding.verify, request.decoding.verify_threshold
    for place in range(1, len(drafted)):
        probabilities = look(generator, ids + drafted[:place])[1].softmax(0)
        probability = float(probabilities[drafted[place]])
        floor = plain_floor(probabilities, rule, threshold)
        if floor and abs(math.log(probability / floor)) < NEAR:
            if probability < float(probabilities.max()):
                return 0
        elif probability < floor:
            return place
    return len(drafted)


def look(generator: CopyGenerator, ids: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """State and token logits after some tokens, by a pass of its own."""
    encoder = generator.model.prefix_encoder
    state = encoder.append_last(encoder.new_cache(batch=1, capacity=8), [ids])
    logits = encoder.token_logits(state)[0].double()
    logits[generator.model.splitter.special_token_ids] = -math.inf
    return state, logits


def fits(written: str, phrase: str) -> bool:
    """Whether a phrase neither glues two words together nor leaves a gap."""
    if phrase[0] == " ":
        return bool(written) and not re.search(r"[\s(\[{“«‘„‚]$", written)
    return not re.search(r"([^\W_]|[.,;:!?)\]}%”»…])$", written)


def count_kept(phrase: PlainPhrase, num_accepted: int) -> int:
    """Number of tokens written: whole words up to one that may end, or all as the vocabulary's."""
    kept = [
        end
        for count, (end, can_end) in enumerate(zip(phrase.word_ends, phrase.can_end, strict=True))
        if can_end and end <= num_accepted and count >= 1
    ]
    return kept[-1] if kept else num_accepted
