"""Verification's rules against their definition, and drafts against a written-out loop."""

import math
from dataclasses import replace

import pytest
import torch

from cog.decoding.draft import Draft
from cog.decoding.plausibility import get_floor, verify_draft
from cog.records import Decoding
from tests.decoding.plain import plain_floor
from tests.decoding.synthetic import PAPER

RULES = [("absolute", 0.06), ("absolute", 0.2), ("relative", 0.3), ("entropy", 0.05)]
EXTREMES = [("absolute", 1.0), ("relative", 1.0), ("entropy", 1e12)]
VOCAB_SIZE, NUM_TOKENS = 12, 8


@pytest.mark.parametrize(("rule", "threshold"), [*RULES, *EXTREMES])
def test_rules_ask_what_their_definition_says(rule: str, threshold: float) -> None:
    logits = torch.randn(6, 40, generator=torch.Generator().manual_seed(3)).double() * 2
    probabilities = logits.softmax(1)
    settings = replace(PAPER, verify=rule, verify_threshold=threshold)
    floors = get_floor(probabilities, settings)
    for row, floor in zip(probabilities, floors, strict=True):
        assert float(floor) == pytest.approx(plain_floor(row, rule, threshold), rel=1e-9)
        assert float(floor) <= float(row.max())  # the best token stays


def test_no_other_rule_is_known() -> None:
    with pytest.raises(ValueError, match="absolute, relative, entropy"):
        get_floor(torch.ones(1, 1), replace(PAPER, verify="sometimes"))


@pytest.mark.parametrize(("rule", "threshold"), [("off", 0.2), *RULES])
@pytest.mark.parametrize(
    ("span_ratio", "trust", "is_near", "least_ratio"),
    [
        (0.0, 0.0, True, 0.0),
        (0.3, 0.0, True, 0.0),
        (0.3, 0.7, True, 0.0),
        (0.3, 0.7, False, 0.0),
        (0.1, 0.0, False, 0.2),
        (0.3, 0.7, False, 0.2),
        (1.0, 2.0, True, 0.0),
    ],
)
def test_drafts_equal_a_written_out_loop(
    rule: str, threshold: float, span_ratio: float, trust: float, is_near: bool, least_ratio: float
) -> None:
    settings = replace(
        PAPER, verify=rule, verify_threshold=threshold, span_ratio=span_ratio, trust=trust
    )
    counts = set()
    for seed in range(30):
        random = torch.Generator().manual_seed(seed)
        ids = torch.randint(VOCAB_SIZE, (NUM_TOKENS,), generator=random).tolist()
        logits = torch.randn(NUM_TOKENS, VOCAB_SIZE, generator=random)
        logits[range(NUM_TOKENS), ids] += 1.5  # so that some are accepted
        draft = Draft(
            ids,
            seed % 4,
            1.0,
            1.0,
            num_agreed=seed % 5,
            is_near=is_near,
            least_ratio=least_ratio,
        )
        first = int(draft.num_chosen > 0)
        wanted, seen, is_sure = plain_verify(logits, draft, settings, first=first)
        accepted, found = verify_draft(logits[first:], draft, settings, first=first)
        assert found == pytest.approx(seen, rel=1e-4)
        if is_sure:
            assert accepted == wanted
            counts.add(accepted)
    assert len(counts) > 1 or (rule, span_ratio + least_ratio) == ("off", 0.0)


def plain_verify(
    logits: torch.Tensor, draft: Draft, settings: Decoding, *, first: int
) -> tuple[int, list[float], bool]:
    """Number of tokens accepted, their probabilities, and whether no token is too near to call."""
    seen: list[float] = []
    num_accepted, is_sure, is_open = first, True, True
    for place in range(first, NUM_TOKENS):
        probabilities = logits[place].double().softmax(0)
        probability, best = float(probabilities[draft.token_ids[place]]), float(probabilities.max())
        floor = plain_floor(probabilities, settings.verify, settings.verify_threshold)
        if place >= draft.num_chosen:
            floor = max(floor, settings.span_ratio * best)
        floor = max(floor, draft.least_ratio * best)
        agreed = draft.num_agreed + (place if draft.is_near else 0)
        floor *= math.exp(-settings.trust * max(0, agreed - 3))
        is_sure &= probability == best or not math.isclose(probability, floor, rel_tol=1e-5)
        is_open = is_open and probability >= floor
        num_accepted += is_open
        seen.append(probability)
    return num_accepted, seen, is_sure


def test_everything_is_accepted_where_nothing_is_asked() -> None:
    logits = torch.zeros(3, VOCAB_SIZE)
    logits[:, 5] = 80.0  # of the others float32 gives nothing
    draft = Draft([1, 2, 3, 4], 4, 1.0, 1.0)
    for settings in (PAPER, replace(PAPER, verify="absolute", verify_threshold=0.0)):
        assert verify_draft(logits, draft, settings, first=1)[0] == 4
