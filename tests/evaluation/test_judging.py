"""Conditional perplexity against transformers run on one text at a time."""

import math
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, GPT2LMHeadModel

from cog.evaluation.features import score_likelihood
from cog.model.language_model import LanguageModel
from cog.model.words import load_tokenizer

PROMPTS = ["The old mill stands", "On market days", "Bread", "The river"]
TEXTS = [" on the river beside the market.", " the baker", " is made from flour", ""]


@pytest.fixture(scope="module")
def causal(tiny_model: Path) -> GPT2LMHeadModel:
    return AutoModelForCausalLM.from_pretrained(tiny_model / "prefix").eval()


@pytest.fixture(scope="module")
def judge(tiny_model: Path, causal: GPT2LMHeadModel) -> LanguageModel:
    return LanguageModel(
        "",
        causal.base_model,
        causal.get_output_embeddings(),
        load_tokenizer(tiny_model / "prefix"),
        begin_token_id=1,
        max_positions=int(causal.config.max_position_embeddings),
    )


@torch.inference_mode()
def plain(causal: GPT2LMHeadModel, judge: LanguageModel, prompt: str, text: str) -> float:
    before, after = [1, *judge.encode(prompt)], list(judge.encode(text))
    logits = causal(torch.tensor([before + after])).logits[0].log_softmax(dim=1)
    return sum(float(logits[len(before) + k - 1, i]) for k, i in enumerate(after))


def test_equals_a_plain_loop_at_any_batch_size(
    causal: GPT2LMHeadModel, judge: LanguageModel
) -> None:
    wanted = [plain(causal, judge, *pair) for pair in zip(PROMPTS, TEXTS, strict=True)]
    for batch_size in (1, 2, 8):
        found = score_likelihood(PROMPTS, TEXTS, judge=judge, batch_size=batch_size)
        assert found[:, 0] == pytest.approx(wanted, abs=1e-4)
        assert found[:, 1].tolist() == [len(judge.encode(text)) for text in TEXTS]
    assert found[3].tolist() == [0, 0]


def test_prompt_is_read_but_not_scored(judge: LanguageModel) -> None:
    alone = score_likelihood([""], [TEXTS[0]], judge=judge, batch_size=1)[0]
    after = score_likelihood([PROMPTS[0]], [TEXTS[0]], judge=judge, batch_size=1)[0]
    assert alone[1] == after[1]
    assert alone[0] != pytest.approx(after[0], abs=1e-3)


def test_long_prompt_is_cut_at_its_beginning(causal: GPT2LMHeadModel, judge: LanguageModel) -> None:
    long = "the river " * judge.max_positions
    found = score_likelihood([long], [TEXTS[0]], judge=judge, batch_size=1)[0]
    assert found[1] == len(judge.encode(TEXTS[0]))
    assert math.isfinite(found[0])


def test_texts_without_prompts_are_refused(judge: LanguageModel) -> None:
    with pytest.raises(ValueError, match="longer|shorter"):
        score_likelihood(["a"], ["b", "c"], judge=judge, batch_size=2)
