# SPDX-License-Identifier: MIT
"""What is special about products with shared factors; gradients and layouts in general are in test_operators.py."""

import pytest
import torch

from dnnsuite.ops import scaled


def _laid_out(x, last):
    return x.movedim(2, -1).contiguous().movedim(-1, 2) if last else x


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("shape", "factors", "last"),
    [
        ((3, 5, 17, 4, 6), (3, 5, 17, 1, 1), True),
        ((3, 5, 17, 12, 16), (3, 5, 17, 1, 1), False),
        ((3, 2, 140, 4, 6), (3, 2, 1, 4, 6), True),
        ((3, 5, 17, 4, 6), (3, 5, 1, 4, 6), False),
        ((3, 5, 17, 4, 6), (3, 1, 17, 1, 1), True),
        ((3, 7, 9, 70), (3, 1, 1, 70), False),
        ((2, 300, 130), (2, 1, 130), False),
        ((2, 3, 9000), (2, 3, 1), False),
        ((2, 9, 33), (2, 1, 1), False),
        ((1, 4, 40), (1, 1, 40), False),
        ((2, 2000, 640), (2, 1, 640), False),  # written past the caches
    ],
)
def test_values_gradients_and_memory_order_are_those_of_torch(shape, factors, last, dtype):
    x = _laid_out(torch.randn(shape, dtype=dtype), last).requires_grad_()
    own = torch.randn(factors, dtype=dtype, requires_grad=True)
    y, truth = scaled(x, own), x * own
    assert y is not None
    assert torch.equal(y, truth)
    assert y.stride() == truth.stride()
    grad = torch.randn(shape, dtype=dtype)
    found, expected = (torch.autograd.grad(z, (x, own), grad) for z in (y, truth))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_a_gradient_of_a_gradient():
    x, own = (torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in ((2, 3, 5), (2, 1, 5)))
    assert torch.autograd.gradgradcheck(scaled, (x, own))


@pytest.mark.parametrize(
    ("x", "factors"),
    [
        (torch.randn(2, 3, 8)[..., ::2], torch.randn(2, 1, 4)),
        (torch.randn(2, 3, 5, 4), torch.randn(2, 1, 5, 1)),  # neither rows nor columns
        (torch.randn(2, 3, 5), torch.randn(2, 3, 5)),
        (torch.randn(2, 3, 5), torch.randn(2, 3, 1)),  # short rows
        (torch.randn(2, 3, 5), torch.randn(2, 1, 4)),
        (torch.randn(2, 3, 5), torch.randn(2, 5)),
        (torch.randn(2, 3, 5), torch.randn(2, 1, 5).double()),
        (torch.randn(2, 3, 5), torch.randn(1, 1, 5)),
        (torch.randn(2, 0, 5), torch.randn(2, 1, 5)),
    ],
)
def test_other_tensors_are_left_to_torch(x, factors):
    assert scaled(x, factors) is None


def test_factors_that_do_not_fit_are_refused():
    with pytest.raises(RuntimeError, match="factors"):
        torch.ops.dnnsuite.scaled(torch.randn(2, 3, 5), torch.randn(2, 3), False)
    with pytest.raises(RuntimeError, match=r"x must be \[groups, rows, columns\]"):
        torch.ops.dnnsuite.scaled(torch.randn(2, 3), torch.randn(2, 3), False)
