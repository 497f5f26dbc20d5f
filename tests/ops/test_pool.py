# SPDX-License-Identifier: MIT
"""What is special about pooling; gradients and layouts in general are in test_operators.py."""

import itertools

import pytest
import torch

from dnnsuite import ops

F = torch.nn.functional
WINDOWS = [
    (kernel, stride, padding, dilation)
    for kernel, stride, padding, dilation in itertools.product(
        ((1, 1), (2, 2), (3, 3), (2, 3), (5, 4)), (1, 2, 3), (0, 1), (1, 2)
    )
    if padding <= min(kernel) // 2 and max(kernel) * dilation <= 7
]


def images(dtype, *shape):
    """Small whole numbers, so that many are equal, with NaNs and infinities among them."""
    x = torch.randint(-3, 4, shape).to(dtype)
    x.view(-1)[::17], x.view(-1)[3::29], x.view(-1)[7::31] = torch.nan, -torch.inf, torch.inf
    return x


def with_gradient(function, x):
    leaf = x.detach().requires_grad_()
    y = function(leaf)
    grad = torch.randn(y.shape, dtype=y.dtype, generator=torch.Generator().manual_seed(0))
    return y, torch.autograd.grad(y, leaf, grad)[0]


def assert_same_bits(a, b):
    torch.testing.assert_close(a, b, rtol=0.0, atol=0.0, equal_nan=True)


@pytest.mark.parametrize(
    ("dtype", "channels", "activation"),
    [(torch.float32, 6, "none"), (torch.float32, 37, "relu"), (torch.float64, 1, "relu"), (torch.float64, 16, "none")],
)
def test_the_largest_is_that_of_torch_to_the_bit(dtype, channels, activation):
    """NaNs, infinities, equals, windows past the end, and gradients; channels that do not fill a vector."""
    x = images(dtype, 2, 2, 7, 8, channels)
    for (kernel, stride, padding, dilation), ceil in itertools.product(WINDOWS, (False, True)):
        steps = kernel, (stride,) * 2, (padding,) * 2, (dilation,) * 2

        def ours(t, steps=steps, ceil=ceil):
            return ops.max_pool(t, *steps, ceil, activation)

        def plain(t, steps=steps, ceil=ceil):
            t = t.flatten(0, 1).movedim(-1, 1)
            y = F.max_pool2d(t.relu() if activation == "relu" else t, *steps, ceil).movedim(1, -1)
            return y.unflatten(0, (2, 2))

        for got, wanted in zip(with_gradient(ours, x), with_gradient(plain, x), strict=True):
            assert_same_bits(got, wanted)


@pytest.mark.parametrize(
    ("dtype", "channels", "counts", "divisor"),
    [
        (torch.float32, 6, True, 0),
        (torch.float32, 37, False, 0),
        (torch.float64, 6, True, 5),
        (torch.float64, 37, False, -3),
    ],
)
def test_the_mean_is_that_of_torch(dtype, channels, counts, divisor):
    x = torch.randn(2, 2, 7, 8, channels, dtype=dtype)
    for (kernel, stride, padding, dilation), ceil in itertools.product(WINDOWS, (False, True)):
        if dilation > 1:
            continue
        steps = kernel, (stride,) * 2, (padding,) * 2

        def ours(t, steps=steps, ceil=ceil):
            return ops.avg_pool(t, *steps, ceil, counts, divisor)

        def plain(t, steps=steps, ceil=ceil):
            y = F.avg_pool2d(t.flatten(0, 1).movedim(-1, 1), *steps, ceil, counts, divisor or None)
            return y.movedim(1, -1).unflatten(0, (2, 2))

        for got, wanted in zip(with_gradient(ours, x), with_gradient(plain, x), strict=True):
            torch.testing.assert_close(got, wanted, rtol=1e-6, atol=1e-6)


def test_a_window_without_a_pixel():
    """Torch refuses or misplaces it; here it is the least number, and nothing has its gradient."""
    x = torch.randn(1, 1, 1, 1, 16, requires_grad=True)
    y = ops.max_pool(x, (2, 2), (1, 1), (1, 1), (2, 2))
    assert (y == -torch.inf).all()
    (dx,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(dx, torch.zeros_like(x))


def test_relu_before_the_largest_is_one_pass():
    """What is kept for the gradient is a byte for each number, of the relu as well."""
    x = torch.randn(2, 3, 4, 4, 16, requires_grad=True)
    y = ops.max_pool(x, (2, 2), activation="relu")
    assert torch.equal(y, ops.max_pool(x.relu(), (2, 2)))
    taps = torch.ops.dnnsuite.max_pool(x.detach(), 2, 2, 2, 2, 0, 0, 1, 1, False, True)[1]
    assert taps.dtype == torch.uint8
    assert torch.equal(taps == 255, y == 0)


@pytest.mark.parametrize(
    ("shape", "steps", "message"),
    [
        ((2, 3, 4, 16), ((2, 2),), r"must be \[B, N, H, W, C\]"),
        ((2, 1, 4, 4, 16), ((5, 5),), "do not fit"),
        ((2, 1, 40, 40, 1), ((16, 16),), "more than 255"),
        ((2, 1, 4, 4, 16), ((2, 2), (0, 1)), "must be positive"),
    ],
)
def test_refuses(shape, steps, message):
    with pytest.raises(RuntimeError, match=message):
        ops.max_pool(torch.randn(shape), *steps)


@pytest.mark.parametrize("channels", [3, 16])
@pytest.mark.parametrize(("kernel", "stride", "padding"), [(7, 7, 0), (7, 3, 3), (5, 5, 2)])
def test_means_of_large_windows(channels, kernel, stride, padding):
    """Rows are summed before columns, and lines of a gradient that are alike are copied."""
    x = torch.randn(2, 2, 15, 22, channels, dtype=torch.float64, requires_grad=True)
    y = ops.avg_pool(x, (kernel,) * 2, (stride,) * 2, (padding,) * 2)
    truth = F.avg_pool2d(x.flatten(0, 1).movedim(-1, 1), kernel, stride, padding).movedim(1, -1)
    torch.testing.assert_close(y.flatten(0, 1), truth)
    grad = torch.randn_like(truth)
    (got,) = torch.autograd.grad(y, x, grad.view_as(y))
    torch.testing.assert_close(got, torch.autograd.grad(truth, x, grad)[0])


@pytest.mark.parametrize("pool", [ops.avg_pool, ops.max_pool])
def test_a_gradient_larger_than_the_caches_is_the_same(pool):
    """Written past them."""
    x = torch.randn(2, 9, 64, 64, 64, requires_grad=True)
    y = pool(x, (2, 2))
    (got,) = torch.autograd.grad(y, x, grad := torch.randn_like(y))
    own = x.detach()[1].requires_grad_()
    (wanted,) = torch.autograd.grad(pool(own[None], (2, 2)), own, grad[1:])
    assert torch.equal(got[1], wanted)
