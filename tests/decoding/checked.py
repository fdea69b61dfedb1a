"""A generator that is held against passes of its own."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from cog.decoding.batch import Ending as End
from cog.decoding.choices import ScoreWords
from cog.decoding.draft import Draft
from cog.decoding.generator import CopyGenerator
from cog.decoding.plausibility import verify_draft
from cog.decoding.row import Row
from cog.decoding.scoring import ALL
from cog.decoding.workers import Job
from cog.errors import CogError
from tests.decoding.plain import look


class CheckedGenerator(CopyGenerator):
    """Holds what every pass says of a text against a pass of its own, without cache or batch."""

    num_checked = num_verified = num_refused = 0

    @torch.inference_mode()
    def draft(
        self, texts: Sequence[tuple[Row, End]]
    ) -> tuple[list[Draft | CogError | None], list[Job]]:
        self.fresh = {id(row): look(self, row.token_ids) for row, _ in texts}
        for row, (state, logits) in texts:
            wanted_state, wanted = self.fresh[id(row)]
            torch.testing.assert_close(state, wanted_state[0], atol=1e-3, rtol=1e-3)
            torch.testing.assert_close(logits.double(), wanted, atol=1e-3, rtol=1e-3)
            self.num_checked += 1
        return super().draft(texts)

    def _choose(self, row: Row, logits: Tensor, score_words: ScoreWords) -> Draft:
        state, wanted = self.fresh[id(row)]
        torch.testing.assert_close(logits.double(), wanted, atol=1e-3, rtol=1e-3)
        queries = self.model.prefix_encoder.phrase_queries(state)
        wanted = row.pool.scorer.score_words(*queries)
        for found, scores in zip(score_words(ALL), wanted, strict=True):
            torch.testing.assert_close(found, scores[0], atol=1e-2, rtol=1e-3)
        return super()._choose(row, logits, score_words)

    @torch.inference_mode()
    def write(
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
                one = replace(draft, least_ratio=draft.least_ratio * part)
                found.append(verify_draft(torch.stack(passes), one, nearly, first=1))
            assert found[0][0] <= num_accepted <= found[1][0]
            np.testing.assert_allclose(probabilities, found[0][1], rtol=2e-3, atol=1e-9)
            self.num_verified += 1
        num_kept = super().write(row, draft, num_accepted, probabilities)
        self.num_refused += not num_kept
        assert row.token_ids == before + list(draft.token_ids[:num_kept])
        return num_kept
