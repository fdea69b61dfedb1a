"""Stored vectors: rounding, scales, zeros and values that cannot be stored."""

import numpy as np
import pytest

from cog.index.tables.quantise import StoredVectors, make_layout, quantise


def dequantise(stored: StoredVectors) -> np.ndarray:
    return stored.vectors.astype(np.float32) * stored.scales[:, None]


def test_int8_is_within_half_a_step() -> None:
    vectors = np.random.default_rng(0).standard_normal((50, 16)).astype(np.float32) * 7
    stored = quantise(vectors, dtype="int8")
    assert stored.vectors.dtype == np.int8
    assert np.abs(stored.vectors).max(axis=1).tolist() == [127] * 50
    step = np.abs(vectors).max(axis=1, keepdims=True) / 127
    assert (np.abs(dequantise(stored) - vectors) <= step / 2 + 1e-6).all()


def test_int8_rounds_half_to_even() -> None:
    stored = quantise(np.array([[127.0, 0.5, 1.5, -2.5]], np.float32), dtype="int8")
    assert stored.vectors.tolist() == [[127, 0, 2, -2]]
    assert stored.scales.tolist() == [1.0]


@pytest.mark.parametrize("dtype", ["int8", "float16"])
def test_zero_vector_stays_zero(dtype: str) -> None:
    stored = quantise(np.zeros((2, 4), np.float32), dtype=dtype)
    assert not dequantise(stored).any()
    assert dtype != "int8" or not stored.scales.any()


def test_subnormal_vector_does_not_overflow() -> None:
    stored = quantise(np.array([[1e-45, -1e-45]], np.float32), dtype="int8")
    assert np.isfinite(dequantise(stored)).all()


def test_float16_keeps_vectors_out_of_its_range() -> None:
    vectors = np.array([[1e6, 1.0], [0.5, 0.25]], np.float32)
    stored = quantise(vectors, dtype="float16")
    assert stored.scales[1] == 1
    np.testing.assert_allclose(dequantise(stored)[0, 0], 1e6, rtol=1e-3)


def test_bytes_per_word_counts_both_vectors_and_scales() -> None:
    assert make_layout("int8", 288).bytes_per_word == 584
    assert make_layout("float16", 288).bytes_per_word == 1160
