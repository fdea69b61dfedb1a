"""Decoding against its definition: greedy texts, and every pass of any text."""

from dataclasses import replace

import pytest

from cog.decoding.generator import CopyGenerator
from cog.decoding.request import Request
from tests.decoding.checked import CheckedGenerator
from tests.decoding.plain import index_table, plain_greedy
from tests.decoding.settings import SETTINGS, ask, decoding

RULES = [("off", 0.0), ("absolute", 0.01), ("absolute", 0.2), ("relative", 0.3), ("entropy", 0.05)]
EXTREMES = [("absolute", 1.0), ("relative", 1.0), ("entropy", 1e6)]


@pytest.mark.parametrize(("rule", "threshold"), RULES)
def test_greedy_equals_a_plain_loop(generator: CopyGenerator, rule: str, threshold: float) -> None:
    requests = ask(method="greedy", max_new_tokens=12, verify=rule, verify_threshold=threshold)
    num_whole = 0
    for request, generation in zip(requests, generator.generate(requests), strict=True):
        wanted = plain_greedy(generator, request, index_table(generator, request))
        assert generation.text.startswith(wanted.text)
        assert generation.text == wanted.text or not wanted.is_whole
        num_whole += wanted.is_whole
    assert num_whole >= 4


@pytest.mark.parametrize(("rule", "threshold"), EXTREMES)
@pytest.mark.parametrize("method", ["greedy", "nucleus"])
def test_extreme_threshold_gives_the_prefix_encoders_own_text(
    generator: CopyGenerator, rule: str, threshold: float, method: str
) -> None:
    strict = {"verify": rule, "verify_threshold": threshold}
    requests = ask(method=method, phrase_bias=2.0, max_new_tokens=20, **strict)
    num_whole = 0
    for request, generation in zip(requests, generator.generate(requests), strict=True):
        wanted = plain_greedy(generator, Request(request.prefix, decoding(max_new_tokens=20)), [])
        assert generation.text.startswith(wanted.text)
        num_whole += wanted.is_whole
    assert num_whole >= 4


@pytest.mark.parametrize("name", SETTINGS)
def test_every_pass_says_what_a_pass_of_its_own_says(generator: CopyGenerator, name: str) -> None:
    checked = CheckedGenerator(generator.model, generator.index)
    requests = ask(2, **SETTINGS[name])
    requests = [
        replace(each, decoding=replace(each.decoding, max_new_tokens=8 + 3 * k))
        for k, each in enumerate(requests)  # texts leave the batch one by one
    ]
    generations = checked.generate(requests)
    num_steps = sum(each.num_steps for each in generations)
    assert checked.num_checked == num_steps + checked.num_refused
    assert checked.num_verified > 10
    assert (checked.num_refused > 0) == (name == "far")
