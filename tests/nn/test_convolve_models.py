# SPDX-License-Identifier: MIT
"""What is special about convolutions written into place; values are compared in test_conv.py and test_equality.py."""

import pytest
import torch

import dnnsuite
from dnnsuite.nn import functional
from dnnsuite.nn._models import convolve_models

GEOMETRY = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)


def inputs(B=3, dtype=torch.float64):
    x, weight, bias = (torch.randn(B, *shape, dtype=dtype) for shape in ((2, 3, 5, 4), (4, 3, 3, 3), (4,)))
    return x.requires_grad_(), weight.requires_grad_(), bias.requires_grad_()


def separate(x, weight, bias):
    own = zip(x, weight, bias, strict=True)
    return torch.stack([torch.nn.functional.conv2d(*tensors, padding=1) for tensors in own])


def test_gradients_are_those_of_separate_models():
    tensors = inputs()
    y, truth = convolve_models(*tensors, GEOMETRY), separate(*tensors)
    grad = torch.randn_like(truth)
    for got, wanted in zip(
        torch.autograd.grad(y, tensors, grad), torch.autograd.grad(truth, tensors, grad), strict=True
    ):
        torch.testing.assert_close(got, wanted)


def test_gradients_of_gradients():
    assert torch.autograd.gradgradcheck(lambda *t: convolve_models(*t, GEOMETRY), inputs(2), fast_mode=True, atol=1e-6)


def test_only_what_is_wanted_is_computed():
    x, weight, bias = inputs()
    y = convolve_models(x.detach(), weight, None, GEOMETRY)
    (dweight,) = torch.autograd.grad(y.sum(), weight)
    assert dweight.shape == weight.shape
    y = convolve_models(x, weight.detach(), bias.detach(), GEOMETRY)
    assert torch.autograd.grad(y.sum(), x)[0].shape == x.shape


def test_channels_stay_last_of_results_and_gradients():
    """Also with a single channel, whose strides torch might read either way."""
    for channels in (1, 3):
        x = torch.randn(2, 4, channels, 6, 6, requires_grad=True)
        weight = torch.randn(2, 5, channels, 3, 3)
        weight = functional.convolution.channels_last(weight).requires_grad_()
        y = functional.conv2d(x, weight)
        y.square().sum().backward()
        assert y.movedim(2, -1).is_contiguous()
        places = [s for s, size in zip(weight.grad.stride(), weight.shape, strict=True) if size > 1]
        assert places == [s for s, size in zip(weight.stride(), weight.shape, strict=True) if size > 1]


def test_a_shared_batch_is_not_copied():
    x, weight, bias = inputs()
    shared = x[:1].detach().expand_as(x)
    torch.testing.assert_close(convolve_models(shared, weight, bias, GEOMETRY), separate(shared, weight, bias))


def test_large_results_are_written_into_place():
    x, weight = (torch.randn(2, 8, 4, 60, 60, requires_grad=True), torch.randn(2, 4, 4, 1, 1, requires_grad=True))
    geometry = ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    y = convolve_models(x, weight, None, geometry)
    truth = torch.stack([torch.nn.functional.conv2d(*own) for own in zip(x, weight, strict=True)])
    assert torch.equal(y, truth)
    grad = torch.randn_like(y)
    got, wanted = (torch.autograd.grad(t, (x, weight), grad) for t in (y, truth))
    assert all(torch.equal(a, b) for a, b in zip(got, wanted, strict=True))


def test_under_transforms():
    x, weight, bias = inputs()
    (tangent,) = torch.func.vjp(lambda w: convolve_models(x, w, bias, GEOMETRY), weight)[1](
        torch.ones(3, 2, 4, 5, 4, dtype=torch.float64)
    )
    (truth,) = torch.autograd.grad(separate(x, weight, bias).sum(), weight)
    torch.testing.assert_close(tangent, truth)


def test_no_models():
    x, weight, bias = (t[:0] for t in inputs())
    assert convolve_models(x, weight, bias, GEOMETRY).shape == (0, 2, 4, 5, 4)


@pytest.mark.parametrize("last", [False, True])
def test_a_result_may_be_written_into(last):
    models = [torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.Conv2d(8, 4, 1)) for _ in range(2)]
    array = dnnsuite.fuse([torch.nn.Sequential(model, Doubled()) for model in models])
    x = torch.randn(2, 5, 3, 9, 9)
    if last:
        x = x.movedim(2, -1).contiguous().movedim(-1, 2)
    array(x).sum().backward()
    assert not [cover for cover in array.coverage() if cover.how == "per model"]
    expected = torch.stack([model(own).mul(2).relu() for model, own in zip(models, x, strict=True)])
    torch.testing.assert_close(array(x), expected)


class Doubled(torch.nn.Module):
    """Writes into what it is given."""

    def forward(self, x):
        return torch.relu_(x.mul_(2))
