# SPDX-License-Identifier: MIT
"""What is special about resampling; gradients and layouts in general are in test_operators.py."""

import pytest
import torch

from dnnsuite import ops


def last(*shape, dtype=torch.float32):
    """Images with the channels last in memory."""
    return torch.randn(*shape[:2], *shape[3:], shape[2], dtype=dtype).movedim(-1, 2)


def test_the_gradient_is_the_transpose():
    x = last(2, 3, 6, 7, 5, dtype=torch.float64).requires_grad_()
    y = ops.resample(x, "cubic", (4, 9), (7 / 4, 5 / 9))
    other = torch.randn_like(y)
    (back,) = torch.autograd.grad(y, x, other)
    torch.testing.assert_close((y * other).sum(), (x * back).sum())


def test_the_gradient_of_a_gradient_of_the_operator_itself():
    grad = torch.randn(2, 1, 4, 3, 5, dtype=torch.float64, requires_grad=True)
    back = torch.ops.dnnsuite.resample_backward
    assert torch.autograd.gradcheck(lambda g: back(g, "linear", 6, 2, 1.5, 0.5, 0, 0), grad)


def test_repeated_pixels_are_those_of_the_image():
    x = torch.full((1, 1, 2, 2, 3), float("inf"))
    x[:, :, 0] = torch.arange(6.0).view(2, 3)
    y = ops.resample(x, "circular", (2, 5), before=(0, 1))
    assert y[0, 0, 0].tolist() == [[2, 0, 1, 2, 0], [5, 3, 4, 5, 3]]
    assert y[0, 0, 1].isinf().all()


def test_images_that_all_models_share_are_resampled_once():
    x = last(1, 3, 6, 4, 5).expand(4, -1, -1, -1, -1)
    y = ops.resample(x, "nearest", (8, 10), (0.5, 0.5))
    assert y.stride(0) == 0
    assert torch.equal(y, ops.resample(x.contiguous(), "nearest", (8, 10), (0.5, 0.5)))


def test_volumes_that_all_models_share_are_resampled_once():
    x = last(1, 3, 6, 2, 4, 5).expand(4, -1, -1, -1, -1, -1)
    y = ops.resample(x, "linear", (3, 8, 10), (2 / 3, 0.5, 0.5))
    assert y.stride(0) == 0
    assert torch.equal(y, ops.resample(x.contiguous(), "linear", (3, 8, 10), (2 / 3, 0.5, 0.5)))


def test_volumes_are_transformed_as_they_are_computed():
    x = last(2, 3, 6, 4, 5, 3, dtype=torch.float64)
    arguments = "linear", (3, 8, 2), (4 / 3, 5 / 8, 1.5)
    plain = x.clone().requires_grad_()
    ops.resample(plain, *arguments).sin().sum().backward()
    grad = torch.func.grad(lambda t: ops.resample(t, *arguments).sin().sum())(x)
    torch.testing.assert_close(grad, plain.grad)


def test_impossible_images_are_refused():
    x = last(2, 3, 6, 4, 4)
    with pytest.raises(RuntimeError, match="no kind 'loud'"):
        ops.resample(x, "loud", (2, 2))
    with pytest.raises(RuntimeError, match="no line of 0 pixels is made of 4"):
        ops.resample(x, "nearest", (0, 2))
    with pytest.raises(RuntimeError, match="4 pixels cannot be reflected over 4"):
        ops.resample(x, "reflect", (8, 4), before=(4, 0))
    with pytest.raises(RuntimeError, match="must have five dimensions"):
        torch.ops.dnnsuite.resample(x[0], "nearest", 2, 2, 1.0, 1.0, 0, 0)
