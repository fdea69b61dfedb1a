"""Ablations against plain loops, and against CoG under other settings."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from cog.baselines.system import ABLATIONS, VARIANTS, resolve_system
from cog.baselines.transformer import TransformerGenerator
from cog.decoding.distribution import next_choice
from cog.decoding.generator import CopyGenerator
from cog.decoding.request import Request
from cog.records import CORPUS, VOCABULARY, Decoding, Generation
from tests.baselines.conftest import OpenSystem
from tests.baselines.plain import GREEDY
from tests.choices import Choices, assert_same_choices, record_choices
from tests.decoding.plain import index_table, plain_greedy

PREFIXES = ("The old mill stands", "On market days", " the river", "Bread is made from", "A")
NUCLEUS = Decoding("nucleus", 0.95, 0, 24, 16, 0.0)
VERIFIED = replace(NUCLEUS, verify="absolute", verify_threshold=0.004)


def write(generator: CopyGenerator, decoding: Decoding) -> list[Generation]:
    return generator.generate([Request(prefix, decoding) for prefix in PREFIXES])


def texts(generator: CopyGenerator, decoding: Decoding) -> list[str]:
    return [each.text for each in write(generator, decoding)]


def choices(generator: CopyGenerator, decoding: Decoding) -> list[Choices]:
    with record_choices() as found:
        write(generator, decoding)
    return found


def test_a_verified_text_differs_from_one_that_is_not(cog: CopyGenerator) -> None:
    assert texts(cog, VERIFIED) != texts(cog, NUCLEUS)  # the tests below rest on it


def check_greedy(generator: CopyGenerator, found: list[Generation], **plain: Any) -> None:  # noqa: ANN401
    """Hold texts against a plain loop, up to where it is too near to call."""
    num_whole = 0
    for each in found:
        request = Request(each.prefix, GREEDY)
        wanted = plain_greedy(generator, request, index_table(generator, request), **plain)
        assert each.text.startswith(wanted.text)
        assert each.text == wanted.text or not wanted.is_whole
        num_whole += wanted.is_whole
    assert num_whole >= 4


@pytest.mark.parametrize("decoding", [GREEDY, NUCLEUS])
def test_tokens_only_is_the_transformer_token_for_token(
    cog: CopyGenerator, decoding: Decoding
) -> None:
    name, alone = resolve_system("cog-tokens", decoding)
    assert name == "cog"
    with record_choices() as wanted:
        TransformerGenerator(cog.model, corpus_id="village").generate(
            [Request(prefix, decoding) for prefix in PREFIXES]
        )
    assert_same_choices(choices(cog, alone), wanted)
    for generation in write(cog, alone):
        assert [s.origin for s in generation.segments] == [VOCABULARY] * decoding.max_new_tokens


def test_unsummed_equals_a_plain_loop(open_named: OpenSystem) -> None:
    system = open_named("cog-unsummed")
    check_greedy(system, write(system, GREEDY), key_of=lambda number, _: number)


def test_unsummed_choices_add_up_to_those_of_cog(
    open_named: OpenSystem, cog: CopyGenerator
) -> None:
    request = Request("The river", NUCLEUS)
    pools = [each.pools.get_pool(request)[0] for each in (open_named("cog-unsummed"), cog)]
    chunks = pools[0].chunks
    query = torch.linspace(-2.0, 2.0, chunks.start_vectors.shape[1])[None]
    logits = torch.linspace(-1.0, 1.0, 7)
    weights = []
    for pool in pools:
        start, end = pool.scorer.score_words(query, query)
        scores, listed = pool.phrases.score(start[0], end[0]), pool.phrases
        found = next_choice(logits, scores, listed)
        summed: dict[tuple[int, ...], list[float]] = {}
        for text in range(listed.num_texts):
            first, last = listed.span(listed.occurrences(text)[0])
            key = chunks.word_hashes[first : last + 1].tolist()
            summed.setdefault(tuple(key), []).append(found.probability(7 + text))
        weights.append(summed)
    alone, together = weights
    assert alone.keys() == together.keys()
    assert any(len(each) > 1 for each in alone.values())
    assert all(len(each) == 1 for each in together.values())
    for key, each in alone.items():
        assert sum(each) == pytest.approx(together[key][0], rel=1e-4)


def test_phrases_only_equals_a_plain_loop(open_named: OpenSystem) -> None:
    system = open_named("cog-phrases")
    check_greedy(system, write(system, GREEDY), has_vocabulary=lambda num_phrases: not num_phrases)


def test_phrases_only_copies_wherever_it_can(open_named: OpenSystem, cog: CopyGenerator) -> None:
    for generation in write(open_named("cog-phrases"), NUCLEUS):
        assert generation.num_tokens == 24
        # where no room is left for a phrase, or behind a space, its tokens are the vocabulary's
        copied = sum(len(s.text) for s in generation.segments if s.origin == CORPUS)
        assert copied > 0.6 * len(generation.text)
    nothing = replace(NUCLEUS, top_k_documents=0)
    assert_same_choices(choices(open_named("cog-phrases"), nothing), choices(cog, nothing))
    verified = write(open_named("cog-phrases"), replace(VERIFIED, verify_threshold=0.0008))
    origins = [segment.origin for each in verified for segment in each.segments]
    assert {CORPUS, VOCABULARY} == set(origins)  # refused copies leave the turn to the vocabulary
    assert [each.num_tokens for each in verified] == [24] * len(PREFIXES)


def test_every_variant_and_ablation_writes_cited_texts_of_the_length_asked(
    open_named: OpenSystem,
) -> None:
    for short in (*VARIANTS, *ABLATIONS):
        name, decoding = resolve_system(short, VERIFIED)
        for generation in write(open_named(name), decoding):
            assert generation.num_tokens == 24
            assert generation.text == "".join(segment.text for segment in generation.segments)
            assert set(generation.seconds) == {"retrieve", "gather", "decode"}
