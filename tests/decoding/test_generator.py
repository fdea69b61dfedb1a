"""The copy-generator on a built index: against a plain loop, in batches, and its citations."""

import math
import re
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from cog.corpus.documents import DocumentStore
from cog.decoding.generator import CopyGenerator
from cog.decoding.request import Request
from cog.errors import GenerationError
from cog.model.words import BARRED, CAN_END, CAN_START
from cog.paths import ProjectPaths
from cog.records import CORPUS, Decoding, Generation, Segment

PREFIXES = [
    "The old mill stands",
    "On market days",
    " the river",
    "Bread is made from flour, water and",
    "A",
]


def decoding(**changes: Any) -> Decoding:  # noqa: ANN401
    return replace(Decoding("nucleus", 0.95, 0, 24, 16, 0.0), **changes)


class PlainPhrase(NamedTuple):
    """A phrase: its text, its tokens, and how many of them end each of its words."""

    text: str
    ids: list[int]
    word_ends: list[int]


def plain_table(generator: CopyGenerator, prefix: str) -> list[tuple[PlainPhrase, np.ndarray]]:
    """Every admissible phrase with its vector: what the paper materialises."""
    chunks = generator.pools.gather(Request(prefix, decoding()))
    documents = generator.index.get_documents(chunks.document_ordinals.tolist())
    table: list[tuple[PlainPhrase, np.ndarray]] = []
    for k, (begin, end) in enumerate(
        zip(chunks.word_offsets[:-1], chunks.word_offsets[1:], strict=True)
    ):
        text = documents[int(chunks.document_ordinals[k])].text
        for i in range(begin, end):
            for j in range(i + 1, min(i + 8, end)):
                flags = chunks.word_flags[i : j + 1]
                if (flags & BARRED).any() or not flags[0] & CAN_START or not flags[-1] & CAN_END:
                    continue
                vector = np.concatenate(
                    [
                        chunks.start_vectors[i].astype(np.float64) * chunks.start_scales[i],
                        chunks.end_vectors[j].astype(np.float64) * chunks.end_scales[j],
                    ]
                )
                begin = chunks.word_tokens[i, 0]
                phrase = PlainPhrase(
                    text[chunks.word_chars[i, 0] : chunks.word_chars[j, 1]],
                    chunks.token_ids[begin : chunks.word_tokens[j, 1]].tolist(),
                    (chunks.word_tokens[i : j + 1, 1] - begin).tolist(),
                )
                table.append((phrase, vector))
    return table


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


def plain_greedy(  # noqa: C901 - one loop in one place
    generator: CopyGenerator,
    prefix: str,
    *,
    num_tokens: int,
    rule: str = "off",
    threshold: float = 0.0,
) -> str:
    """Greedy decoding by definition.

    No cache, a materialised phrase table, probabilities summed by text in a dictionary; under a
    rule, one forward pass for each token that is checked, and whole words only.
    """
    model, encoder = generator.model, generator.model.prefix_encoder
    table = plain_table(generator, prefix)
    ids = generator.prefix_ids(Request(prefix, decoding()))
    length = len(ids)

    def token_logits(token_ids: list[int]) -> torch.Tensor:
        state = encoder.append_last(encoder.new_cache(batch=1, capacity=8), [token_ids])
        logits = encoder.token_logits(state)[0].double()
        logits[generator.model.splitter.special_token_ids] = -math.inf
        return logits

    def count_kept(phrase: PlainPhrase) -> int:
        # all that is plausible, but no part of a word
        for place in range(1, min(len(phrase.ids), length + num_tokens - len(ids))):
            probabilities = token_logits(ids + phrase.ids[:place]).softmax(0)
            if probabilities[phrase.ids[place]] < plain_floor(probabilities, rule, threshold):
                return max((end for end in phrase.word_ends if end <= place), default=0)
        return len(phrase.ids)

    while len(ids) < length + num_tokens:
        state = encoder.append_last(encoder.new_cache(batch=1, capacity=8), [ids])
        logits = token_logits(ids)
        probabilities = logits.softmax(0)
        floor = plain_floor(probabilities, rule, threshold)
        query = torch.cat(encoder.phrase_queries(state), dim=1)[0].double().numpy()
        weights: dict[tuple[int, ...] | str, float] = {}
        found: dict[tuple[int, ...] | str, PlainPhrase] = {}
        for token, logit in enumerate(logits.tolist()):
            if probabilities[token] >= floor:
                weights[(token,)], found[(token,)] = math.exp(logit), PlainPhrase("", [token], [1])
        tokens = dict(weights)
        written = prefix.encode() + model.splitter.decode(np.array(ids[length:], dtype=np.int32))
        is_open = not re.search(r"[\w.,;:!?)\]}%]$", written.decode(errors="replace"))
        for phrase, vector in table:
            if probabilities[phrase.ids[0]] >= floor and (is_open or phrase.text[0] == " "):
                weight = math.exp(float(query @ vector))
                weights[phrase.text] = weights.get(phrase.text, 0.0) + weight
                found[phrase.text] = phrase
        best = found[max(weights, key=lambda key: weights[key])]
        kept = best.ids[: count_kept(best)]
        ids = [*ids, *(kept or max(tokens, key=lambda key: tokens[key]))]
    return model.splitter.decode(np.array(ids[length : length + num_tokens])).decode(
        errors="replace"
    )


def test_greedy_equals_a_plain_loop(generator: CopyGenerator) -> None:
    requests = [
        Request(prefix, decoding(method="greedy", max_new_tokens=12)) for prefix in PREFIXES
    ]
    for request, generation in zip(requests, generator.generate(requests), strict=True):
        assert generation.text == plain_greedy(generator, request.prefix, num_tokens=12)


def test_text_does_not_depend_on_its_batch(generator: CopyGenerator) -> None:
    requests = [
        Request(prefix, decoding(seed=seed, max_new_tokens=10 + 7 * seed))
        for seed in range(3)
        for prefix in PREFIXES
    ]
    together = generator.generate(requests)
    alone = [generator.generate([request])[0] for request in requests]
    assert [g.segments for g in together] == [
        tuple(replace(s, probability=pytest.approx(s.probability, rel=1e-3)) for s in g.segments)
        for g in alone
    ]


def test_seeds_and_prefixes_change_the_text(generator: CopyGenerator) -> None:
    requests = [Request(PREFIXES[0], decoding(seed=seed)) for seed in range(4)]
    texts = [generation.text for generation in generator.generate(requests)]
    assert len(set(texts)) == 4
    assert texts == [generation.text for generation in generator.generate(requests)]


@pytest.mark.parametrize("max_new_tokens", [1, 2, 3, 7, 24, 100])
def test_exactly_as_many_tokens_as_asked(generator: CopyGenerator, max_new_tokens: int) -> None:
    bias = 4.0  # many copies, so that some are cut
    requests = [
        Request(prefix, decoding(max_new_tokens=max_new_tokens, phrase_bias=bias, seed=seed))
        for prefix in PREFIXES
        for seed in range(4)
    ]
    for generation in generator.generate(requests):
        assert generation.num_tokens == max_new_tokens
        assert generation.num_steps == len(generation.segments) <= max_new_tokens


def check_citations(generation: Generation, store: DocumentStore) -> int:
    assert generation.text == "".join(segment.text for segment in generation.segments)
    copies = [segment for segment in generation.segments if segment.origin == CORPUS]
    for segment in copies:
        document = store.get_document(str(segment.document_id))
        assert document.text[segment.char_start : segment.char_end] == segment.text
        assert (segment.title, segment.licence) == (document.title, document.licence)
    return len(copies)


def test_every_copy_is_cited_byte_for_byte(generator: CopyGenerator, village: ProjectPaths) -> None:
    store = DocumentStore(village.corpus("village").documents)
    requests = [
        Request(prefix, decoding(seed=seed, phrase_bias=bias, max_new_tokens=30))
        for prefix in PREFIXES
        for seed in range(5)
        for bias in (0.0, 5.0)
    ]
    num_copies = sum(
        check_citations(generation, store) for generation in generator.generate(requests)
    )
    assert num_copies > 100


def test_phrase_bias_moves_copies(generator: CopyGenerator) -> None:
    def copied_share(bias: float) -> float:
        requests = [Request(prefix, decoding(phrase_bias=bias)) for prefix in PREFIXES]
        segments = [s for g in generator.generate(requests) for s in g.segments]
        return sum(segment.origin == CORPUS for segment in segments) / len(segments)

    assert copied_share(-1e4) == 0.0
    assert copied_share(-2.0) < copied_share(2.0) < copied_share(1e4) == 1.0


def test_no_documents_leave_the_vocabulary(generator: CopyGenerator) -> None:
    requests = [Request(prefix, decoding(top_k_documents=0)) for prefix in PREFIXES]
    for generation in generator.generate(requests):
        assert all(segment.origin == "vocabulary" for segment in generation.segments)
        assert generation.num_steps == 24


@pytest.mark.parametrize(
    "prefix", ["", "x", "   ", "🙂🙂", "שלום עולם", "a\0b", "line\n\n\tline", "word " * 20_000]
)
def test_odd_prefixes_are_answered(
    generator: CopyGenerator, village: ProjectPaths, prefix: str
) -> None:
    request = Request(prefix, decoding())
    generation = generator.generate([request])[0]
    assert generation.num_tokens == 24
    assert generation.prefix == prefix
    check_citations(generation, DocumentStore(village.corpus("village").documents))
    assert (generator.num_unread_tokens(request) > 0) == (len(prefix) > 1000)


@pytest.mark.parametrize(
    ("prefix", "changes", "message"),
    [
        ("a\ud800", {}, "lone surrogate"),
        ("a", {"max_new_tokens": 0}, "max_new_tokens must lie between 1 and 128"),
        ("a", {"max_new_tokens": 1000}, "max_new_tokens"),
        ("a", {"top_p": 0.0}, "top_p"),
        ("a", {"top_p": 1.5}, "top_p"),
        ("a", {"method": "beam"}, "greedy or nucleus"),
        ("a", {"top_k_documents": -1}, "top_k_documents"),
        ("a", {"phrase_bias": math.nan}, "phrase_bias"),
        ("a", {"verify": "sometimes"}, "verify must be one of off, absolute, relative, entropy"),
        ("a", {"verify": "absolute", "verify_threshold": 1.5}, "verify_threshold"),
        ("a", {"verify": "relative", "verify_threshold": -0.1}, "verify_threshold"),
        ("a", {"verify": "entropy", "verify_threshold": math.inf}, "verify_threshold"),
        ("a", {"temperature": 0.0}, "temperature"),
        ("a", {"temperature": math.nan}, "temperature"),
    ],
)
def test_unusable_requests_are_refused(
    generator: CopyGenerator, prefix: str, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(GenerationError, match=message):
        generator.generate([Request(prefix, decoding(**changes))])


def test_no_requests_give_no_texts(generator: CopyGenerator) -> None:
    assert generator.generate([]) == []


def test_segments_are_reported_as_they_come(generator: CopyGenerator) -> None:
    heard: dict[int, list[Segment]] = {0: [], 1: []}
    requests = [Request(prefix, decoding(phrase_bias=3.0)) for prefix in PREFIXES[:2]]
    generations = generator.generate(requests, on_segment=lambda i, s: heard[i].append(s))
    for number, generation in enumerate(generations):
        assert tuple(heard[number]) == generation.segments


def test_forbidden_chunks_are_never_copied_from(generator: CopyGenerator) -> None:
    index = generator.index
    documents = index.chunk_documents()
    allowed = documents % 2 == 0
    restricted = CopyGenerator(generator.model, index, allowed_chunks=allowed)
    titles = {
        index.get_documents([ordinal])[ordinal].document_id
        for ordinal in documents[allowed].tolist()
    }
    requests = [
        Request(prefix, decoding(phrase_bias=6.0, seed=s)) for prefix in PREFIXES for s in range(3)
    ]
    cited = {
        segment.document_id
        for generation in restricted.generate(requests)
        for segment in generation.segments
        if segment.origin == CORPUS
    }
    assert cited
    assert cited <= titles


def test_special_tokens_are_never_written(generator: CopyGenerator) -> None:
    model = generator.model
    requests = [
        Request(prefix, decoding(top_p=1.0, top_k_documents=0, seed=s))
        for prefix in PREFIXES
        for s in range(9)
    ]
    texts = [generation.text for generation in generator.generate(requests)]
    assert model.splitter.special_token_ids.tolist() == [0]
    assert not any("<|begin|>" in text for text in texts)
