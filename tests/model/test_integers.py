"""Products of int8 digits against plain ones."""

import pytest
import torch

from cog.model.integers import is_int8_exact, multiply_rows, split_digits


@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e6])
def test_three_digits_hold_a_vector_to_float32(scale: float) -> None:
    vectors = torch.randn(5, 288, generator=torch.Generator().manual_seed(1)) * scale
    digits, scales = split_digits(vectors)
    assert digits.dtype == torch.int8
    restored = (digits.double() * scales.double().unsqueeze(2)).sum(0)
    error = (restored - vectors.double()).abs().amax() / vectors.abs().amax()
    assert error < 2**-22


@pytest.mark.skipif(not is_int8_exact(), reason="needs a processor with VNNI or AMX")
@pytest.mark.parametrize(("num_digits", "bound"), [(1, 2**-8), (2, 2**-16), (3, 2**-22)])
def test_products_lose_only_what_digits_leave_out(num_digits: int, bound: float) -> None:
    random = torch.Generator().manual_seed(2)
    vectors = torch.randn(4, 96, generator=random)
    rows = torch.randint(-127, 128, (7, 96), dtype=torch.int8, generator=random)
    row_scales = torch.rand(7, generator=random)
    products = multiply_rows(vectors, rows, row_scales, num_digits=num_digits)
    exact = vectors.double() @ (rows.double() * row_scales.double().unsqueeze(1)).T
    # at most: every number of a vector is off by half a unit of its last digit
    most = vectors.abs().amax(1, keepdim=True) * rows.abs().sum(1) * row_scales * bound
    assert ((products.double() - exact).abs() <= most).all()
    assert products.dtype == torch.float32
