# SPDX-License-Identifier: MIT
import itertools

import pytest
import torch

from dnnsuite import ops, stack

F = torch.nn.functional


def expected(x, weight, bias, steps):
    """Model by model; channels last outside."""
    own = [
        F.conv2d(image.movedim(-1, 1), filters.movedim(-1, 0).unsqueeze(1), b, *steps, groups=image.shape[-1])
        for image, filters, b in zip(x, weight, bias, strict=True)
    ]
    return torch.stack(own).movedim(2, -1)


@pytest.mark.parametrize("channels", [1, 3, 8, 16, 37])
@pytest.mark.parametrize("kernel", [(1, 1), (3, 3), (5, 5), (3, 5), (2, 7)])
def test_every_shape(channels, kernel):
    """Tiles of four, two and one, their borders, filters without tiles, and channels that do not fill a vector, whose
    lines are laid out."""
    for side, stride, padding, dilation in itertools.product((1, 2, 7, 19), (1, 2, 3, 4), (0, 1, 2), (1, 2)):
        if any(side + 2 * padding <= dilation * (k - 1) for k in kernel):
            continue
        steps = ((stride, stride), (padding, padding), (dilation, dilation))
        x = torch.randn(2, 2, side, side + 1, channels, requires_grad=True)
        weight = torch.randn(2, *kernel, channels, requires_grad=True)
        bias = torch.randn(2, channels, requires_grad=True)
        y, truth = ops.depthwise(x, weight, bias, *steps), expected(x, weight, bias, steps)
        grad = torch.randn_like(truth)
        got = (y, *torch.autograd.grad(y, (x, weight, bias), grad))
        wanted = (truth, *torch.autograd.grad(truth, (x, weight, bias), grad))
        for a, b in zip(got, wanted, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4, msg=f"{side} {steps}")


def test_a_shared_batch_is_not_copied():
    x, weight = torch.randn(2, 4, 4, 16), torch.randn(3, 3, 3, 16, requires_grad=True)
    y = ops.depthwise(stack(x, 3), weight, None, (1, 1), (1, 1))
    own = ops.depthwise(torch.stack([x] * 3), weight, None, (1, 1), (1, 1))
    assert torch.equal(y, own)
    (dweight,) = torch.autograd.grad(y.sum(), weight)
    (again,) = torch.autograd.grad(own.sum(), weight)
    assert torch.equal(dweight, again)


@pytest.mark.parametrize("channels", [1, 3, 16])
def test_nothing_outside_an_image_is_looked_at(channels):
    """Zeros stand for the padding, also beside an infinite pixel."""
    x, weight = torch.zeros(1, 1, 2, 2, channels), torch.ones(1, 3, 3, channels, requires_grad=True)
    x[0, 0, 0, 0] = torch.inf
    y = ops.depthwise(x, weight, None, (1, 1), (1, 1))
    assert (y == torch.inf).all()
    (dweight,) = torch.autograd.grad(y, weight, torch.ones_like(y))
    assert not dweight.isnan().any()


@pytest.mark.parametrize("channels", [3, 32])
def test_any_number_of_threads_gives_the_same_bits(channels):
    inputs = torch.randn(3, 2, 19, 17, channels), torch.randn(3, 3, 3, channels), torch.randn(3, channels)
    found = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        leaves = [t.detach().requires_grad_() for t in inputs]
        y = ops.depthwise(*leaves, (2, 2), (1, 1))
        factors = torch.cos(torch.arange(y.numel(), dtype=y.dtype)).view(y.shape)
        found.append((y.detach(), *torch.autograd.grad(y, leaves, factors)))
    torch.set_num_threads(1)
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


@pytest.mark.parametrize(
    ("x", "weight", "steps", "message"),
    [
        ((2, 3, 4, 16), (2, 3, 3, 16), (), "x must have 5 dimensions"),
        ((2, 1, 4, 4, 16), (2, 3, 3, 8), (), "weight must have shape"),
        ((2, 1, 4, 4, 16), (2, 5, 5, 16), (), "smaller than the kernel of 5"),
        ((2, 1, 4, 4, 16), (2, 3, 3, 16), ((0, 1),), "must be positive"),
    ],
)
def test_refuses(x, weight, steps, message):
    with pytest.raises(RuntimeError, match=message):
        ops.depthwise(torch.randn(x), torch.randn(weight), None, *steps)
