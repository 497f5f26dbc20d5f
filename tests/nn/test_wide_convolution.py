# SPDX-License-Identifier: MIT
"""Convolutions of a shared batch as one: only where it is the same to the bit, and small."""

import pytest
import torch

from dnnsuite import stack
from dnnsuite.nn import functional
from dnnsuite.nn._wide_convolution import FEW_NUMBERS, wide_convolution

channels_last = functional.convolution.channels_last


def geometry(stride=1, padding=1, groups=1):
    return [stride] * 2, [padding] * 2, [1, 1], False, [0, 0], groups


@pytest.mark.parametrize(
    ("shape", "outputs", "kernel", "stride", "groups"),
    [
        ((8, 1, 9, 9), 6, 3, 1, 1),
        ((4, 3, 8, 8), 16, 5, 2, 1),
        ((1, 16, 4, 4), 8, 3, 1, 1),
        ((8, 16, 4, 4), 32, 1, 2, 4),
        ((2, 12, 5, 6), 18, 3, 1, 6),
        ((4, 8, 5, 5), 8, 1, 1, 4),
    ],
)
def test_the_bits_are_those_of_a_model_alone(shape, outputs, kernel, stride, groups):
    weight = channels_last(torch.randn(3, outputs, shape[1] // groups, kernel, kernel)).requires_grad_()
    bias, x = torch.randn(3, outputs, requires_grad=True), torch.randn(shape)
    y = functional.conv2d(stack(x, 3), weight, bias, stride, 1, 1, groups)
    grad = channels_last(torch.randn_like(y))
    together = (y, *torch.autograd.grad(y, (weight, bias), grad))
    assert y.movedim(2, -1).is_contiguous() or (kernel, stride) == (1, 1)
    for model in range(3):
        own = [t[model : model + 1] for t in (weight, bias)]
        one = functional.conv2d(stack(x, 1), *own, stride, 1, 1, groups)
        alone = (one, *torch.autograd.grad(one, own, grad[model : model + 1]))
        for a, b in zip(together, alone, strict=True):
            assert torch.equal(a[model : model + 1], b)


def test_only_what_is_shared_and_small():
    x, weight = channels_last(torch.randn(1, 8, 4, 6, 6)), channels_last(torch.randn(2, 8, 4, 3, 3))
    shared = x.expand(2, *x.shape[1:])
    found = wide_convolution(shared, weight, None, geometry())
    if found is not None:  # it is where this machine's bits are the same
        torch.testing.assert_close(found, functional.conv2d(shared.clone(), weight, None, 1, 1))
    assert wide_convolution(shared.clone(), weight, None, geometry()) is None
    assert wide_convolution(shared.double(), weight.double(), None, geometry()) is None
    assert wide_convolution(shared.detach().requires_grad_(), weight, None, geometry()) is None
    samples = FEW_NUMBERS // (2 * 8 * 36) + 1
    assert wide_convolution(x[:, :1].expand(2, samples, 4, 6, 6), weight, None, geometry()) is None


def test_no_numbers_are_drawn():
    """The trial of a geometry leaves the generator where it was."""
    x, weight = torch.randn(2, 3, 11, 11), channels_last(torch.randn(2, 5, 3, 3, 3))
    before = torch.get_rng_state()
    functional.conv2d(stack(x, 2), weight)
    assert torch.equal(torch.get_rng_state(), before)
