"""Codes of vectors: bits against a plain loop, what they stand for, and what more bits bring."""

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from cog.errors import CheckpointError
from cog.model.config import CONFIG_FILE, advise_on_damage
from cog.model.vector_code import (
    VECTOR_CODES,
    VectorCode,
    VectorCodes,
    count_bytes,
    fit_code,
    load_codes,
)

DIM = 24


def draw(num: int, *, seed: int, seen: int = 6) -> np.ndarray:
    """Vectors most of whose spread lies along a few axes, as a trained head's does."""
    random = np.random.default_rng(seed)
    basis = np.linalg.qr(np.random.default_rng(99).normal(size=(DIM, DIM)))[0]
    spread = np.where(np.arange(DIM) < seen, 3.0, 0.2)
    return (random.normal(size=(num, DIM)) * spread @ basis + 0.5).astype(np.float32)


@pytest.fixture(scope="module")
def code() -> VectorCode:
    return fit_code(draw(2000, seed=0), draw(500, seed=1), num_bytes=5)


def test_bits_are_shared_out_and_fall(code: VectorCode) -> None:
    assert int(code.num_bits.sum()) == 40
    assert (np.diff(code.num_bits.astype(int)) <= 0).all()
    assert 0 < code.num_axes < DIM  # axes that no query looks at get none
    assert code.num_bytes == 5


def test_packed_bits_equal_a_plain_loop(code: VectorCode) -> None:
    integers = code.quantise(draw(7, seed=2))
    packed = code.pack(integers)
    for row, found in zip(integers.tolist(), packed, strict=True):
        bits = ""
        for plane in range(8):
            for value, count in zip(row, code.num_bits.tolist(), strict=True):
                if plane < count:
                    bits += format(value + (1 << (count - 1)), f"0{count}b")[plane]
        padded = bits.ljust(8 * code.num_bytes, "0")
        assert found.tobytes() == int(padded, 2).to_bytes(code.num_bytes, "big")
    assert np.array_equal(code.unpack(packed), integers)


@pytest.mark.parametrize("num_bits", [[1], [8], [8, 8, 8, 1], [3, 2, 2, 1, 1], [8, 1, 1]])
def test_every_integer_survives_packing(num_bits: list[int]) -> None:
    width = len(num_bits)
    zeros = np.zeros((width, width), np.float32)
    code = VectorCode(zeros[0], zeros, zeros, np.array(num_bits, np.uint8))
    half = 1 << (np.array(num_bits) - 1)
    random = np.random.default_rng(0)
    integers = random.integers(-half, half, size=(300, width)).astype(np.int8)
    integers[0], integers[1] = -half, half - 1
    packed = code.pack(integers)
    assert packed.shape == (300, code.num_bytes)
    assert np.array_equal(code.unpack(packed), integers)


def restore(code: VectorCode, integers: np.ndarray) -> np.ndarray:
    return integers.astype(np.float32) @ code.decode + code.offset


def test_scores_of_integers_are_scores_of_what_they_stand_for(code: VectorCode) -> None:
    integers, queries = code.quantise(draw(50, seed=3)), draw(5, seed=4)
    folded = queries @ code.decode.T
    scores = folded @ integers.T.astype(np.float32) + (queries @ code.offset)[:, None]
    np.testing.assert_allclose(scores, queries @ restore(code, integers).T, rtol=1e-4, atol=1e-3)


def test_error_of_scores_falls_with_bits_and_is_below_that_of_equal_bits() -> None:
    vectors, queries = draw(2000, seed=0), draw(500, seed=1)
    fresh, asked = draw(300, seed=5), draw(100, seed=6)
    exact = asked @ fresh.T
    errors = []
    for num_bytes in (2, 3, 4, 6):
        code = fit_code(vectors, queries, num_bytes=num_bytes)
        restored = restore(code, code.quantise(fresh))
        errors.append(float(np.square(asked @ restored.T - exact).mean()))
    assert all(less < 0.5 * more for more, less in zip(errors, errors[1:], strict=False))
    scale = np.abs(fresh).max(axis=1, keepdims=True) / 7  # four bits each, twice as many bytes
    equal = float(np.square(asked @ (np.rint(fresh / scale) * scale).T - exact).mean())
    assert errors[-1] < equal / 3


def test_fit_does_not_need_more_bits_than_there_are() -> None:
    code = fit_code(draw(100, seed=0)[:, :4], draw(100, seed=1)[:, :4], num_bytes=75)
    assert code.num_bits.tolist() == [8] * 4


def test_an_empty_axis_and_equal_vectors_are_no_trouble() -> None:
    vectors = draw(200, seed=0)
    vectors[:, 3] = 1.0
    for sample in (vectors, np.repeat(vectors[:1], 50, axis=0)):
        code = fit_code(sample, draw(100, seed=1), num_bytes=24)
        restored = restore(code, code.quantise(sample))
        assert np.isfinite(restored).all()
        assert np.abs(restored - sample).max() < 3.0


def test_not_finite_is_refused(code: VectorCode) -> None:
    vectors = draw(2, seed=0)
    vectors[1, 1] = np.nan
    with pytest.raises(ValueError, match="finite"):
        code.quantise(vectors)


def test_codes_come_back_from_a_folder(code: VectorCode, tmp_path: Path) -> None:
    codes = VectorCodes(code, fit_code(draw(500, seed=7), draw(100, seed=8), num_bytes=8))
    codes.save(tmp_path)
    loaded = load_codes(tmp_path)
    assert loaded.digest() == codes.digest() != VectorCodes(code, code).digest()
    for each in fields(VectorCode):
        assert np.array_equal(getattr(loaded.end, each.name), getattr(codes.end, each.name))


def test_missing_and_damaged_codes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="codes of vectors"):
        load_codes(tmp_path)
    (tmp_path / VECTOR_CODES).write_bytes(b"\0" * 20)
    with pytest.raises(CheckpointError, match="codes of vectors"):
        load_codes(tmp_path)


def test_damaged_codes_of_a_model_are_its_own_to_bring_back(tmp_path: Path) -> None:
    (tmp_path / VECTOR_CODES).write_bytes(b"\0" * 20)
    with pytest.raises(CheckpointError, match="next: cog index build --force"):
        load_codes(tmp_path)
    (tmp_path / CONFIG_FILE).touch()
    with pytest.raises(CheckpointError, match=f"next: git -C {tmp_path} checkout HEAD -- vector_c"):
        load_codes(tmp_path)


def test_what_comes_with_the_package_is_installed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cog.model.config.get_shipped", lambda: tmp_path / "_data")
    assert advise_on_damage(tmp_path / "_data" / "models" / "m" / "a.bin").startswith("pip install")
    assert advise_on_damage(tmp_path / "models" / "m" / "a.bin").startswith("git -C ")


@pytest.mark.parametrize("dim", [1, 8, 74, 75, 76, 81])
@pytest.mark.parametrize("kind", ["spread", "constant", "one", "unasked"])
def test_odd_samples_give_codes_that_hold_them(dim: int, kind: str) -> None:
    random = np.random.default_rng(dim)
    vectors = random.normal(size=(1 if kind == "one" else 40, dim)).astype(np.float32)
    queries = random.normal(size=(50, dim)).astype(np.float32)
    if kind == "constant":
        vectors[:] = vectors[0]
    if kind == "unasked":
        queries[:] = 0.0
    code = fit_code(vectors, queries)
    assert code.num_bytes == count_bytes(dim) == min(75, dim)
    integers = code.quantise(vectors)
    assert np.array_equal(code.unpack(code.pack(integers)), integers)
    np.testing.assert_allclose(restore(code, integers), vectors, atol=0.1)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_code_is_fitted_to_numbers_only(value: float) -> None:
    vectors, queries = draw(20, seed=0), draw(20, seed=1)
    for array in (vectors, queries):
        array[3, 2], kept = value, array[3, 2]
        with pytest.raises(CheckpointError, match="must be finite"):
            fit_code(vectors, queries)
        array[3, 2] = kept
