# SPDX-License-Identifier: MIT
"""Filters of one tap on contiguous images, against torch's convolution of each model in float64."""

import pytest
import torch

from dnnsuite import ops
from dnnsuite.ops.library import library

B = 3
F = torch.nn.functional
SHAPES = [  # samples, channels in and out, pixels
    (5, 40, 6, 16),
    (3, 6, 40, 5),
    (1, 300, 3, 4),
    (70, 7, 3, 9),
    (2, 3, 70, 300),
    (4, 66, 17, 1),
]


def plain(x, weight, bias):
    biases = [None] * len(x) if bias is None else bias
    own = zip(x, weight.unsqueeze(-1), biases, strict=True)
    return torch.stack([F.conv1d(*tensors) for tensors in own])


def leaves(samples, inputs, outputs, pixels, dtype=torch.float64, models=B):
    shapes = (models, samples, inputs, pixels), (models, outputs, inputs), (models, outputs)
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]


@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values_and_gradients_are_torchs(shape, dtype, has_bias):
    tensors = leaves(*shape, dtype)
    given = tensors if has_bias else [*tensors[:2], None]
    asked = [t for t in given if t is not None]
    exact = [t.detach().double().requires_grad_() for t in asked]
    y, truth = ops.pixel_products(*given), plain(*exact, *[None] * (not has_bias))
    grad = torch.randn_like(truth)
    got, want = torch.autograd.grad(y, asked, grad.to(dtype)), torch.autograd.grad(truth, exact, grad)
    bounds = {"rtol": 1e-4, "atol": 1e-3} if dtype == torch.float32 else {}
    torch.testing.assert_close([y, *got], [t.to(dtype) for t in (truth, *want)], **bounds)
    assert y.is_contiguous()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_bits_of_a_model_do_not_depend_on_the_others(shape):
    tensors = leaves(*shape, torch.float32)
    y = ops.pixel_products(*tensors)
    grad = torch.randn_like(y)
    all_gradients = torch.autograd.grad(y, tensors, grad)
    for model in range(B):
        own = [t.detach()[model : model + 1].requires_grad_() for t in tensors]
        alone = ops.pixel_products(*own)
        assert torch.equal(alone[0], y[model])
        gradients = torch.autograd.grad(alone, own, grad[model : model + 1])
        assert all(torch.equal(g[0], whole[model]) for g, whole in zip(gradients, all_gradients, strict=True))


def test_a_gradient_with_strides_of_zero():
    tensors = leaves(4, 9, 5, 7)
    got = torch.autograd.grad(ops.pixel_products(*tensors).sum(), tensors)
    torch.testing.assert_close(got, torch.autograd.grad(plain(*tensors).sum(), tensors))


def test_gradients_of_gradients():
    tensors = leaves(2, 4, 3, 2, models=2)
    assert torch.autograd.gradcheck(ops.pixel_products, tensors)
    assert torch.autograd.gradgradcheck(ops.pixel_products, tensors)


@pytest.mark.parametrize(("models", "samples"), [(0, 4), (2, 0)])
def test_nothing_to_multiply(models, samples):
    tensors = leaves(samples, 9, 5, 7, models=models)
    y = ops.pixel_products(*tensors)
    assert y.shape == (models, samples, 5, 7)
    assert [g.shape for g in torch.autograd.grad(y.sum(), tensors)] == [t.shape for t in tensors]


@pytest.mark.parametrize("depth", [0, 1, 3, 16, 100, 255, 256, 257, 600])
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (13, 5), (1, 100), (4, 70), (30, 33)])
def test_sums_of_products_in_all_layouts(depth, rows, columns):
    """As many parts as scratch memory holds are summed at a time; matrices lie plain or turned."""
    a, b = torch.randn(2, 7, rows, depth).double(), torch.randn(2, 7, depth, columns).double()
    truth = torch.matmul(a, b).sum(1)
    for left in (a, a.mT.contiguous().mT):
        for right in (b, b.mT.contiguous().mT, torch.stack([b, b], -1)[..., 0]):
            torch.testing.assert_close(library.sum_of_products(left, right), truth)


BAD_SUMS = [
    ((2, 3, 4, 5), (2, 3, 6, 5), "b must have shape"),
    ((2, 3, 4, 5), (2, 3, 5), "b must have shape"),
    ((2, 0, 4, 5), (2, 0, 5, 5), "of a sample or more"),
]


@pytest.mark.parametrize(("a", "b", "message"), BAD_SUMS)
def test_sums_of_what_does_not_fit(a, b, message):
    with pytest.raises(RuntimeError, match=message):
        library.sum_of_products(torch.ones(a), torch.ones(b))


BAD = [
    ((2, 5, 4), (2, 3, 4), torch.ones(2, 3), "x must be"),
    ((2, 5, 7, 6), (2, 3, 4), torch.ones(2, 3), "x must have shape"),
    ((2, 5, 4, 6), (2, 3, 4, 1), torch.ones(2, 3), "weight must have three dimensions"),
    ((2, 5, 4, 6), (2, 3, 4), torch.ones(2, 1), "bias must have shape"),
    ((2, 5, 4, 6), (2, 3, 4), torch.ones(2, 3).double(), "bias"),
]


@pytest.mark.parametrize(("x", "weight", "bias", "message"), BAD)
def test_what_does_not_fit(x, weight, bias, message):
    with pytest.raises(RuntimeError, match=message):
        ops.pixel_products(torch.ones(x), torch.ones(weight), bias)
