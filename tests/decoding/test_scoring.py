"""Word scores and phrase scores against the paper's materialised phrase table."""

import numpy as np
import pytest
import torch

from cog.decoding.candidates import find_phrases
from cog.decoding.distribution import PhraseTable
from cog.decoding.scoring import (
    FloatScorer,
    IntegerScorer,
    WordScorer,
    has_int8_dot_products,
    make_scorer,
    split_digits,
)
from cog.index.records import GatheredChunks
from tests.decoding.synthetic import DIM, make_chunks

CPU = torch.device("cpu")


def restored(chunks: GatheredChunks) -> tuple[np.ndarray, np.ndarray]:
    starts = chunks.start_vectors.astype(np.float64) * chunks.start_scales[:, None]
    ends = chunks.end_vectors.astype(np.float64) * chunks.end_scales[:, None]
    return starts, ends


def phrase_scores(
    scorer: WordScorer, chunks: GatheredChunks, query: torch.Tensor, bias: float
) -> np.ndarray:
    phrases = find_phrases(chunks, min_words=2, max_words=8)
    table = PhraseTable.from_phrases(phrases, device=CPU)
    start, end = scorer.score_words(query[:, :DIM], query[:, DIM:])
    return np.stack(
        [table.score(s, e, phrase_bias=bias).numpy() for s, e in zip(start, end, strict=True)]
    )


def scorers(chunks: GatheredChunks) -> list[WordScorer]:
    return [
        FloatScorer(chunks, device=CPU),
        *([IntegerScorer(chunks)] if chunks.start_vectors.dtype == np.int8 else []),
    ]


@pytest.mark.parametrize("dtype", ["int8", "float16"])
@pytest.mark.parametrize("bias", [0.0, -1.5])
def test_banded_sum_equals_the_materialised_table(dtype: str, bias: float) -> None:
    chunks, _ = make_chunks(1, lengths=(40, 25, 60), dtype=dtype)
    phrases = find_phrases(chunks, min_words=2, max_words=8)
    starts, ends = restored(chunks)
    # (num_phrases, 2 * dim): what the paper stores, and what is never built here
    table = np.concatenate([starts[phrases.first], ends[phrases.last]], axis=1)
    query = torch.randn(3, 2 * DIM, generator=torch.Generator().manual_seed(0)) * 3
    expected = query.numpy().astype(np.float64) @ table.T + bias
    for scorer in scorers(chunks):
        np.testing.assert_allclose(phrase_scores(scorer, chunks, query, bias), expected, atol=2e-5)


def test_digits_hold_a_query_to_float32(subtests: pytest.Subtests) -> None:
    for scale in (1e-20, 1.0, 1e6):
        with subtests.test(scale=scale):
            query = torch.randn(5, 288, generator=torch.Generator().manual_seed(1)) * scale
            digits, scales = split_digits(query)
            assert digits.dtype == torch.int8
            restored_query = (digits.double() * scales.double().unsqueeze(2)).sum(0)
            error = (restored_query - query.double()).abs().amax() / query.abs().amax()
            assert error < 2**-22


def test_query_of_zeros_scores_zero() -> None:
    chunks, _ = make_chunks(2)
    for scorer in scorers(chunks):
        start, end = scorer.score_words(torch.zeros(1, DIM), torch.zeros(1, DIM))
        assert not start.any()
        assert not end.any()


def test_extreme_vectors_do_not_saturate() -> None:
    chunks, _ = make_chunks(4, lengths=(64,))
    chunks.start_vectors[:] = 127
    chunks.start_vectors[::2] = -127
    scorer = IntegerScorer(chunks)
    start, _ = scorer.score_words(torch.full((1, DIM), 5.0), torch.zeros(1, DIM))
    expected = restored(chunks)[0].sum(1) * 5.0
    np.testing.assert_allclose(start[0].numpy(), expected, rtol=1e-6)


def test_scorer_fits_what_is_stored() -> None:
    integers, floats = make_chunks(0)[0], make_chunks(0, dtype="float16")[0]
    assert isinstance(make_scorer(floats, device=CPU), FloatScorer)
    expected = IntegerScorer if has_int8_dot_products() else FloatScorer
    assert isinstance(make_scorer(integers, device=CPU), expected)
