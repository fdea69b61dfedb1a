"""Likelihood of the reference: what really follows goes in, how likely a system finds it comes out.

No judge, no sampling: for the copy-generator summed over every way to copy and spell it, for the
others over its tokens. Nothing is verified. Told per word, so that tokenizers do not matter.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from cog.baselines.system import COPYING, VARIANTS
from cog.decoding.generator import CopyGenerator
from cog.decoding.request import Request
from cog.evaluation.metrics.metric import LOWER, NONE, Measured, Metric, perplexity_of
from cog.evaluation.records import SeedResult
from cog.evaluation.rows import digest_text, fill
from cog.evaluation.segmentations import score_reference
from cog.evaluation.session import Evaluation
from cog.records import Prompt

PER_WORD = Metric("likelihood/per-word", perplexity_of(0, 2), LOWER, is_log=True)
PER_TOKEN = Metric("likelihood/per-token", perplexity_of(0, 3), NONE, is_log=True)
# as if nothing could be copied
VOCABULARY = Metric("likelihood/vocabulary", perplexity_of(1, 2), NONE, is_log=True)
METRICS = (PER_WORD, PER_TOKEN, VOCABULARY)
KEPT_REFERENCES = 8  # references after which their likelihoods are kept


def find_reason_against(run: Evaluation) -> str:
    """Why a system has no such scores; empty if it has."""
    if run.system.name in VARIANTS:
        return "scores references as cog does, or not at all"
    return ""


def measure(run: Evaluation, _seeds: tuple[SeedResult, ...]) -> list[Measured]:
    """Ask the system about every reference; what was asked before is not asked again."""
    prompts = run.selection.prompts

    def compute(positions: list[int]) -> NDArray[np.float64]:
        run.progress.expect(len(positions))
        rows = []
        for i in positions:
            rows.append(_score(run, prompts[i]))
            run.progress.advance(1)
        return np.array(rows)

    cache = run.store.rows("references", run.system.likelihood_digest)
    digests = [digest_text(prompt.prefix, prompt.reference) for prompt in prompts]
    found = fill(cache, digests, compute, batch_size=KEPT_REFERENCES)
    words = [max(1, len(prompt.reference.split())) for prompt in prompts]
    rows = np.column_stack([found[:, :2], words, found[:, 2]])[None]
    metrics = METRICS if run.system.name in COPYING else METRICS[:2]
    note = "smoke" if run.system.is_smoke else ""
    return [Measured(metric, rows, note=note) for metric in metrics]


def _score(run: Evaluation, prompt: Prompt) -> tuple[float, float, int]:
    # log-probability, the same under the vocabulary alone, and number of tokens
    generator = run.get_generator()
    decoding = replace(run.plan.protocol.decoding_of(run.system.decoding, 0), verify="off")
    request = Request(prompt.prefix, decoding)
    token_ids = run.splitter.encode(prompt.reference)
    if isinstance(generator, CopyGenerator):
        found = score_reference(generator, request, token_ids)
        return found.log_probability, found.token_log_probability, len(token_ids)
    total = float(generator.score_tokens(request, token_ids).sum())
    return total, total, len(token_ids)
