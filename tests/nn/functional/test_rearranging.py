# SPDX-License-Identifier: MIT
"""Pixels and channels in another order."""

import pytest
import torch
from torch.nn import functional as F

from dnnsuite.nn import functional
from dnnsuite.nn.functional import vision


def last(*shape):
    return torch.randn(*shape[:2], *shape[3:], shape[2]).movedim(-1, 2)


CASES = {
    "pixels": ("pixel_shuffle", vision.shuffled_pixels, 2, (24, 3, 5)),
    "pixels to one channel": ("pixel_shuffle", vision.shuffled_pixels, 3, (9, 4, 3)),
    "pixels apart": ("pixel_unshuffle", vision.unshuffled_pixels, 2, (5, 6, 8)),
    "channels": ("channel_shuffle", vision.shuffled_channels, 4, (16, 3, 5)),
    "halves of channels": ("channel_shuffle", vision.shuffled_channels, 2, (58, 3, 5)),
    "single channels": ("channel_shuffle", vision.shuffled_channels, 4, (4, 3, 5)),
}


@pytest.mark.parametrize(("name", "ours", "factor", "shape"), CASES.values(), ids=CASES)
def test_what_torch_does_to_each_model(name, ours, factor, shape):
    x = last(3, 2, *shape).requires_grad_()
    y = getattr(functional, name)(x, factor)
    assert torch.equal(y, ours(x, factor))
    truth = torch.stack([getattr(F, name)(one.contiguous(), factor) for one in x.unbind(0)])
    assert torch.equal(y, truth)
    assert y.movedim(2, -1).is_contiguous()
    grad = torch.randn_like(truth)
    assert torch.equal(*(torch.autograd.grad(t, x, grad)[0] for t in (y, truth)))


def test_channels_of_lines():
    x = torch.randn(2, 3, 7, 6).transpose(2, 3)
    assert torch.equal(functional.channel_shuffle(x, 3)[1], F.channel_shuffle(x[1], 3))


@pytest.mark.parametrize(("kernel", "sides"), [(2, (6, 8)), ((3, 4), (6, 8)), (4, (64, 64))])
def test_windows_side_by_side(kernel, sides):
    x = last(3, 2, 5, *sides).requires_grad_()
    y = functional.unfold(x, kernel, stride=kernel)
    truth = torch.stack([F.unfold(one, kernel, stride=kernel) for one in x.unbind(0)])
    assert torch.equal(y, truth)
    assert y.is_contiguous()
    assert torch.equal(y, vision.windows_apart(x, kernel if isinstance(kernel, tuple) else (kernel, kernel)))
    grad = torch.randn_like(truth)
    assert torch.equal(*(torch.autograd.grad(t, x, grad)[0] for t in (y, truth)))


@pytest.mark.parametrize("options", [{"stride": 3}, {"stride": 2, "padding": 1}, {"stride": 2, "dilation": 2}, {}])
def test_other_windows_are_those_of_torch(options):
    x = last(3, 2, 5, 7, 8)
    assert torch.equal(functional.unfold(x, 2, **options)[1], F.unfold(x[1], 2, **options))


def test_images_that_all_models_share_are_rearranged_once():
    x = last(1, 2, 8, 4, 4).expand(3, -1, -1, -1, -1)
    y = functional.pixel_shuffle(x, 2)
    assert y.stride(0) == 0
    assert torch.equal(y[2], F.pixel_shuffle(x[2], 2))


def test_what_does_not_fit_has_the_message_of_torch():
    with pytest.raises(RuntimeError, match="divisible"):
        functional.pixel_shuffle(last(2, 3, 6, 4, 4), 2)
    with pytest.raises(RuntimeError, match="divisible"):
        functional.channel_shuffle(last(2, 3, 6, 4, 4), 4)
