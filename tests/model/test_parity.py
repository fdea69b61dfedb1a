"""cog-v0 against the scores it was trained to give (parity.json); fetches the base wheels."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cog.model.load import load_index_model, load_model
from cog.model.words import BARRED, CAN_END, CAN_START, flag_words

pytestmark = pytest.mark.registry
TOLERANCE = 1e-2


@pytest.fixture(scope="module")
def folder(repository: Path) -> Path:
    return repository / "models" / "cog-v0"


@pytest.fixture(scope="module")
def parity(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "parity.json").read_text())


def test_scores_of_cog_v0_are_reproduced(folder: Path, parity: dict[str, Any]) -> None:
    model, indexing = load_model(folder), load_index_model(folder)
    text = parity["document"]
    words = indexing.splitter.split(text)
    spans = np.stack([words.word_chars[:-1], words.word_chars[1:]], axis=1)
    assert words.token_ids.tolist() == parity["document_token_ids"]
    assert [text[a:b] for a, b in spans] == parity["words"]
    spans[:, 0] += [text[a] == " " for a in spans[:, 0]]
    vectors = indexing.phrase_encoder.encode_chunks([text], [spans])[0]

    prefix_ids = [1, *model.splitter.encode(parity["prefix"]).tolist()]
    assert prefix_ids == parity["prefix_token_ids"]
    encoder = model.prefix_encoder
    states = encoder.append_last(encoder.new_cache(batch=1, capacity=16), [prefix_ids])
    start_query, end_query = encoder.phrase_queries(states)
    starts, ends = vectors.start @ start_query[0].numpy(), vectors.end @ end_query[0].numpy()

    flags = flag_words(text, words.word_chars)
    scores = {
        (i, j): float(starts[i] + ends[j - 1])
        for i in range(words.num_words)
        for j in range(i + 2, min(i + 8, words.num_words) + 1)
        if not (flags[i:j] & BARRED).any() and flags[i] & CAN_START and flags[j - 1] & CAN_END
    }
    assert len(scores) == parity["num_admissible_spans"]
    ranked = sorted(scores, key=lambda span: -scores[span])
    for span, expected in zip(ranked, parity["top_spans"], strict=False):
        assert span == (expected["word_start"], expected["word_end"])
        assert scores[span] == pytest.approx(expected["score"], abs=TOLERANCE)
    assert scores[ranked[-1]] == pytest.approx(parity["bottom_span"]["score"], abs=TOLERANCE)

    logits = encoder.token_logits(states)[0]
    for expected in parity["top_tokens"]:
        assert float(logits[expected["token_id"]]) == pytest.approx(
            expected["logit"], abs=TOLERANCE
        )
    everything = torch.cat([logits, torch.tensor(list(scores.values()))])
    assert float(everything.logsumexp(0)) == pytest.approx(
        parity["logsumexp_tokens_and_spans"], abs=TOLERANCE
    )
