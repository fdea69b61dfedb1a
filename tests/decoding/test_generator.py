"""The copy-generator on a built index: against a plain loop, in batches, and its citations."""

import math
from dataclasses import replace
from typing import Any

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


def plain_table(generator: CopyGenerator, prefix: str) -> list[tuple[str, np.ndarray, list[int]]]:
    """Text, phrase vector and tokens of every admissible phrase: what the paper materialises."""
    chunks = generator.pools.gather(Request(prefix, decoding()))
    documents = generator.index.get_documents(chunks.document_ordinals.tolist())
    table: list[tuple[str, np.ndarray, list[int]]] = []
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
                ids = chunks.token_ids[chunks.word_tokens[i, 0] : chunks.word_tokens[j, 1]].tolist()
                table.append((text[chunks.word_chars[i, 0] : chunks.word_chars[j, 1]], vector, ids))
    return table


def plain_greedy(  # noqa: C901 - one loop in one place
    generator: CopyGenerator, prefix: str, *, num_tokens: int, min_probability: float = 0.0
) -> str:
    """Greedy decoding by definition.

    No cache, a materialised phrase table, probabilities summed by text in a dictionary; with a
    least probability, one forward pass for each token that is checked.
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

    while len(ids) < length + num_tokens:
        state = encoder.append_last(encoder.new_cache(batch=1, capacity=8), [ids])
        logits = token_logits(ids)
        probabilities = logits.softmax(0)
        floor = min(min_probability, float(probabilities.max()))
        query = torch.cat(encoder.phrase_queries(state), dim=1)[0].double().numpy()
        weights: dict[tuple[int, ...] | str, float] = {}
        spelled: dict[tuple[int, ...] | str, list[int]] = {}
        for token, logit in enumerate(logits.tolist()):
            if probabilities[token] >= floor:
                weights[(token,)], spelled[(token,)] = math.exp(logit), [token]
        for text, vector, phrase_ids in table:
            if probabilities[phrase_ids[0]] >= floor:
                weights[text] = weights.get(text, 0.0) + math.exp(float(query @ vector))
                spelled[text] = phrase_ids
        best = spelled[max(weights, key=lambda key: weights[key])]
        ids = [*ids, best[0]]
        for token in best[1:]:
            if token_logits(ids).softmax(0)[token] < min_probability:
                break
            ids = [*ids, token]
    return model.splitter.decode(np.array(ids[length : length + num_tokens])).decode(
        errors="replace"
    )


def test_greedy_equals_a_plain_loop(generator: CopyGenerator) -> None:
    requests = [
        Request(prefix, decoding(method="greedy", max_new_tokens=12)) for prefix in PREFIXES
    ]
    for request, generation in zip(requests, generator.generate(requests), strict=True):
        assert generation.text == plain_greedy(generator, request.prefix, num_tokens=12)


@pytest.mark.parametrize("min_probability", [0.002, 0.01, 0.2])
def test_checked_copies_equal_a_plain_loop(
    generator: CopyGenerator, village: ProjectPaths, min_probability: float
) -> None:
    changes = {"method": "greedy", "max_new_tokens": 12, "min_token_probability": min_probability}
    requests = [Request(prefix, decoding(**changes)) for prefix in PREFIXES]
    store = DocumentStore(village.corpus("village").documents)
    for request, generation in zip(requests, generator.generate(requests), strict=True):
        expected = plain_greedy(
            generator, request.prefix, num_tokens=12, min_probability=min_probability
        )
        assert generation.text == expected
        assert generation.num_tokens == 12
        check_citations(generation, store)


def test_checks_shorten_copies_in_any_batch(generator: CopyGenerator) -> None:
    def copied(min_probability: float, size: int) -> list[str]:
        requests = [
            Request(
                prefix, decoding(min_token_probability=min_probability, phrase_bias=3.0, seed=s)
            )
            for prefix in PREFIXES
            for s in range(3)
        ]
        batches = [requests[i : i + size] for i in range(0, len(requests), size)]
        heard: list[str] = []
        for batch in batches:
            segments: dict[int, list[Segment]] = {i: [] for i in range(len(batch))}
            generations = generator.generate(
                batch, on_segment=lambda i, s, to=segments: to[i].append(s)
            )
            assert [tuple(segments[i]) for i in segments] == [g.segments for g in generations]
            heard += [g.text for g in generations]
        return heard

    free, checked = copied(0.0, 15), copied(0.02, 15)
    assert free != checked
    assert checked == copied(0.02, 4) == copied(0.02, 1)


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
        ("a", {"min_token_probability": 1.0}, "min_token_probability"),
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
