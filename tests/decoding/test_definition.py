"""Decoding against its definition: greedy texts, and every pass of any text."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from cog.decoding.draft import Draft
from cog.decoding.generator import CopyGenerator
from cog.decoding.generator import Ending as End
from cog.decoding.plausibility import verify_draft
from cog.decoding.request import Request
from cog.decoding.row import Row
from tests.decoding.plain import index_table, look, plain_greedy
from tests.decoding.settings import SETTINGS, ask, decoding

RULES = [("off", 0.0), ("absolute", 0.01), ("absolute", 0.2), ("relative", 0.3), ("entropy", 0.05)]
EXTREMES = [("absolute", 1.0), ("relative", 1.0), ("entropy", 1e12)]


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


class CheckedGenerator(CopyGenerator):
    """Holds what every pass says of a text against a pass of its own, without cache or batch."""

    num_checked = num_verified = 0

    @torch.inference_mode()
    def _draft(self, texts: Sequence[tuple[Row, End]]) -> list[Draft]:
        self.fresh = {id(row): look(self, row.token_ids) for row, _ in texts}
        for row, (state, logits) in texts:
            wanted_state, wanted = self.fresh[id(row)]
            torch.testing.assert_close(state, wanted_state[0], atol=1e-3, rtol=1e-3)
            torch.testing.assert_close(logits.double(), wanted, atol=1e-3, rtol=1e-3)
            self.num_checked += 1
        return super()._draft(texts)

    def _choose(self, row: Row, logits: Tensor, word_scores: tuple[Tensor, Tensor] | None) -> Draft:
        state, wanted = self.fresh[id(row)]
        torch.testing.assert_close(logits.double(), wanted, atol=1e-3, rtol=1e-3)
        if word_scores is not None:
            queries = self.model.prefix_encoder.phrase_queries(state)
            for found, scores in zip(
                word_scores, row.pool.scorer.score_words(*queries), strict=True
            ):
                torch.testing.assert_close(found, scores[0], atol=1e-2, rtol=1e-3)
        return super()._choose(row, logits, word_scores)

    @torch.inference_mode()
    def _write(
        self, row: Row, draft: Draft, num_accepted: int, probabilities: Sequence[float]
    ) -> int:
        before = list(row.token_ids)
        if probabilities:
            ids = list(draft.token_ids)
            passes = [look(self, before + ids[:k])[1] for k in range(1, len(ids))]
            decoding, found = row.request.decoding, []
            for part in (1 + 1e-3, 1 - 1e-3):  # what rounds otherwise may be taken or not
                nearly = replace(
                    decoding,
                    verify_threshold=decoding.verify_threshold * part,
                    span_ratio=decoding.span_ratio * part,
                )
                found.append(verify_draft(torch.stack(passes), draft, nearly, first=1))
            assert found[0][0] <= num_accepted <= found[1][0]
            np.testing.assert_allclose(probabilities, found[0][1], rtol=2e-3, atol=1e-9)
            self.num_verified += 1
        num_kept = super()._write(row, draft, num_accepted, probabilities)
        assert row.token_ids == before + list(draft.token_ids[:num_kept])
        return num_kept


@pytest.mark.parametrize("name", SETTINGS)
def test_every_pass_says_what_a_pass_of_its_own_says(generator: CopyGenerator, name: str) -> None:
    checked = CheckedGenerator(generator.model, generator.index)
    requests = ask(2, **SETTINGS[name])
    requests = [
        replace(each, decoding=replace(each.decoding, max_new_tokens=8 + 3 * k))
        for k, each in enumerate(requests)  # texts leave the batch one by one
    ]
    generations = checked.generate(requests)
    assert checked.num_checked == sum(each.num_steps for each in generations)
    assert checked.num_verified > 10
