# SPDX-License-Identifier: MIT
"""What is special about group_norm; what holds for every operator is in test_operators.py."""

import pytest
import torch

from dnnsuite import ops


def test_far_from_zero_loses_no_digits(device):
    x = 1000 + torch.randn(2, 3, 4, 8, 8).to(device)
    expected = torch.stack([torch.nn.functional.group_norm(own, 2) for own in x.double()])
    assert (ops.group_norm(x, 2) - expected).abs().max() < 2e-3


def test_channels_last_is_the_same(device):
    x = torch.randn(2, 3, 4, 5, 5).to(device)
    turned = x.movedim(2, -1).contiguous().movedim(-1, 2)
    torch.testing.assert_close(ops.group_norm(turned, 2), ops.group_norm(x, 2))


def test_refuses():
    with pytest.raises(RuntimeError, match="4 channels are not divisible into 3"):
        ops.group_norm(torch.randn(2, 3, 4, 16), 3)
    with pytest.raises(RuntimeError, match="16 elements or more"):
        torch.ops.dnnsuite.group_norm(torch.randn(2, 3, 4, 15), 2, None, None, 1e-5)


def test_channels_last_without_a_gradient_of_the_input():
    """Where torch's own gradient of weight and bias ends the process."""
    x = torch.randn(2, 8, 1, 1, 16).movedim(-1, 2)
    weight, bias = (torch.randn(2, 16, requires_grad=True) for _ in range(2))
    y = ops.group_norm(x, 4, weight, bias)
    grads = torch.autograd.grad(y.square().sum(), (weight, bias))
    truth = torch.stack([torch.nn.functional.group_norm(x[i].contiguous().double(), 4) for i in range(2)])
    wanted = 2 * ((truth * weight[:, None, :, None, None] + bias[:, None, :, None, None]) * truth).sum((1, 3, 4))
    torch.testing.assert_close(grads[0].double(), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(2, 3, 6, 4, 4), (2, 2, 40, 5, 7), (1, 2, 256, 4, 9), (2, 1, 4, 40, 33)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_channels_last_stays_so_and_has_its_gradients(shape, dtype):
    B, N, C, H, W = shape
    x = (3 + torch.randn(B, N, H, W, C, dtype=dtype)).movedim(-1, 2).requires_grad_()
    weight, bias = (torch.randn(B, C, dtype=dtype, requires_grad=True) for _ in range(2))
    y = ops.group_norm(x, 2, weight, bias)
    assert y.stride() == x.stride()
    grad = torch.randn(B, N, H, W, C, dtype=dtype).movedim(-1, 2)
    found = torch.autograd.grad(y, (x, weight, bias), grad)
    assert found[0].stride() == x.stride()
    wide = [t.detach().double().contiguous().requires_grad_() for t in (x, weight, bias)]
    truth = torch.stack([torch.nn.functional.group_norm(own, 2, w, b) for own, w, b in zip(*wide, strict=True)])
    wanted = torch.autograd.grad(truth, wide, grad.double())
    for a, b in zip((y, *found), (truth, *wanted), strict=True):
        torch.testing.assert_close(a.double(), b, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("shape", [(2, 3, 8, 1, 1), (2, 3, 40, 2, 3), (1, 5, 6, 1, 1), (2, 2, 96, 3, 2)])
def test_small_maps_have_a_kernel_where_the_channels_lie_last(shape):
    B, _, C, *_ = shape
    x = torch.randn(shape, dtype=torch.float64).movedim(2, -1).contiguous().movedim(-1, 2).requires_grad_()
    weight, bias = (torch.randn(B, C, dtype=torch.float64, requires_grad=True) for _ in range(2))
    y = ops.group_norm(x, 2, weight, bias)
    truth = torch.stack([torch.nn.functional.group_norm(*own) for own in zip(x, (2, 2), weight, bias, strict=False)])
    torch.testing.assert_close(y, truth)
    grad = torch.randn_like(truth)
    for a, b in zip(*(torch.autograd.grad(t, (x, weight, bias), grad) for t in (y, truth)), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize(("samples", "channels", "side"), [(18, 32, 64), (18, 256, 23)])
def test_larger_than_the_caches_is_the_same(samples, channels, side):
    """Written past them."""
    x = torch.randn(2, samples, channels, side, side).movedim(2, -1).contiguous().movedim(-1, 2).requires_grad_()
    y = ops.group_norm(x, 4)
    grad = torch.randn_like(y)
    (dx,) = torch.autograd.grad(y, x, grad)
    own = x[1].detach().contiguous().requires_grad_()
    wanted = torch.nn.functional.group_norm(own, 4)
    torch.testing.assert_close(y[1], wanted, rtol=1e-4, atol=1e-4)
    (expected,) = torch.autograd.grad(wanted, own, grad[1].contiguous())
    torch.testing.assert_close(dx[1], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("samples", "channels", "side"), [(37, 96, 8), (7, 256, 9), (3, 256, 27)])
def test_gradients_of_more_samples_than_a_block(samples, channels, side):
    """The last block of samples comes first; each has its own model's weight, and its own part of the sums."""
    x = torch.randn(2, samples, side, side, channels).movedim(-1, 2).requires_grad_()
    weight, bias = (torch.randn(2, channels, requires_grad=True) for _ in range(2))
    grad = torch.randn(2, samples, side, side, channels).movedim(-1, 2)
    found = torch.autograd.grad(ops.group_norm(x, 4, weight, bias), (x, weight, bias), grad)
    wide = [t.detach().double().contiguous().requires_grad_() for t in (x, weight, bias)]
    truth = torch.stack([torch.nn.functional.group_norm(own, 4, w, b) for own, w, b in zip(*wide, strict=True)])
    for a, b in zip(found, torch.autograd.grad(truth, wide, grad.double()), strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-3)
