# SPDX-License-Identifier: MIT
"""Layer norm where rounding hurts, and its arguments."""

import pytest
import torch

from dnnsuite import ops


def test_large_mean(device):
    """The variance is that of the differences from the mean: a mean of 10^4 does not drown it."""
    x = 1e4 + torch.randn(2, 3, 64, device=device)
    expected = torch.nn.functional.layer_norm(x.double(), (64,)).float()
    torch.testing.assert_close(ops.layer_norm(x), expected, rtol=0, atol=3e-3)


@pytest.mark.parametrize("columns", [1, 15, 16, 17, 768, 5000, 20000])
def test_widths(columns, device):
    """Also rows that no shared memory of a GPU can hold."""
    x = torch.randn(2, 2, columns, device=device, requires_grad=True)
    w = torch.randn(2, columns, device=device)
    g = torch.randn(2, 2, columns, device=device)
    (dx,) = torch.autograd.grad(ops.layer_norm(x, w), x, g)
    wide = x.detach().double().requires_grad_()
    y = torch.nn.functional.layer_norm(wide, (columns,)) * w.double()[:, None]
    (expected,) = torch.autograd.grad(y, wide, g.double())
    torch.testing.assert_close(dx.double(), expected, rtol=1e-4, atol=2e-4)


def test_constant_row(device):
    x = torch.full((1, 1, 8), 3.0, device=device)
    assert torch.equal(ops.layer_norm(x), torch.zeros_like(x))


def test_no_gradient_where_none_is_wanted():
    x, w = torch.randn(2, 3, 4), torch.randn(2, 4, requires_grad=True)
    ops.layer_norm(x, w).sum().backward()
    assert x.grad is None
    assert w.grad is not None
    with torch.no_grad():
        assert not ops.layer_norm(x, w).requires_grad


def test_second_derivative():
    x = torch.randn(1, 2, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(ops.layer_norm, (x,))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": torch.ones(3)}, r"x must have at least 2 dimensions.*not shape \[3\]"),
        ({"x": torch.ones(3, 0)}, r"last dimension of x must not be 0, shape is \[3, 0\]"),
        ({"weight": torch.ones(5)}, r"weight must have shape \[3, 5\], not \[5\]"),
        ({"bias": torch.ones(3, 6)}, r"norm_bias must have shape \[3, 5\], not \[3, 6\]"),
        ({"weight": torch.ones(3, 5).bfloat16()}, "weight must be Float, not BFloat16"),
    ],
)
def test_bad_arguments(change, message):
    with pytest.raises(RuntimeError, match=message):
        ops.layer_norm(**({"x": torch.ones(3, 2, 5)} | change))


@pytest.mark.parametrize("columns", [3, 16, 37])
def test_a_shared_batch_without_a_gradient(columns):
    x = torch.randn(9, columns)
    weight, bias = (torch.randn(3, columns, requires_grad=True) for _ in range(2))
    y = ops.layer_norm(x.expand(3, 9, columns), weight, bias)
    grad = torch.randn(3, 9, columns)
    found = torch.autograd.grad(y, (weight, bias), grad)
    wide = [t.detach().double().requires_grad_() for t in (weight, bias)]
    truth = torch.stack(
        [torch.nn.functional.layer_norm(x.double(), [columns], w, b) for w, b in zip(*wide, strict=True)]
    )
    wanted = torch.autograd.grad(truth, wide, grad.double())
    for a, b in zip((y, *found), (truth, *wanted), strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-4)
