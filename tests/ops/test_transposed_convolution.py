# SPDX-License-Identifier: MIT
"""Transposed convolutions by the operators of convolutions, against torch's in float64, model by model."""

import pytest
import torch

from dnnsuite import ops

B, N = 3, 2
F = torch.nn.functional


def last(*shape):
    """Images or filters with the channels last in memory."""
    return torch.randn(*shape[:2], *shape[3:], shape[2], dtype=torch.float64).movedim(-1, 2)


def contiguous(*shape):
    return torch.randn(shape, dtype=torch.float64)


def strided(*shape):
    """Every second number of a larger tensor."""
    return torch.randn(*shape[:-1], 2 * shape[-1], dtype=torch.float64)[..., ::2]


CASES = {  # inputs, outputs, groups, sides, kernel, stride, padding, dilation, extra
    "plain": (5, 3, 1, (4, 3), (4, 4), (2, 2), (1, 1), (1, 1), (0, 0)),
    "uneven": (6, 2, 1, (3, 4), (3, 5), (2, 3), (1, 0), (1, 1), (1, 2)),
    "dilated": (4, 3, 1, (4, 4), (3, 3), (1, 2), (2, 0), (2, 1), (0, 1)),
    "groups": (8, 6, 2, (3, 3), (3, 3), (2, 2), (1, 1), (1, 1), (1, 0)),
    "gaps": (4, 2, 2, (2, 3), (1, 2), (3, 3), (0, 0), (1, 1), (2, 2)),
    "one pixel": (40, 3, 1, (1, 1), (4, 4), (1, 1), (0, 0), (1, 1), (0, 0)),
    "channels": (6, 6, 6, (4, 5), (4, 3), (2, 1), (1, 1), (1, 2), (0, 0)),
}


def case(name, lay_out, B=B):
    inputs, outputs, groups, sides, kernel, stride, padding, dilation, extra = CASES[name]
    x, weight = lay_out(B, N, inputs, *sides), lay_out(B, inputs, outputs // groups, *kernel)
    bias = torch.randn(B, outputs, dtype=torch.float64)
    ends = zip(sides, kernel, stride, padding, dilation, extra, strict=True)
    made = [(n - 1) * s - 2 * p + d * (k - 1) + 1 + e for n, k, s, p, d, e in ends]
    return (x, weight, bias), (stride, padding, dilation), groups, made, extra


def ours(tensors, steps, groups, sides):
    if groups == tensors[0].size(2):
        return ops.transposed_depthwise(*tensors, *steps, sides)
    return ops.transposed_convolution(*tensors, *steps, groups, sides)


def plain(tensors, steps, groups, extra):
    own = zip(*(t.contiguous().unbind(0) for t in tensors), strict=True)
    stride, padding, dilation = steps
    return torch.stack([F.conv_transpose2d(*one, stride, padding, extra, groups, dilation) for one in own])


@pytest.mark.parametrize("models", [1, B])
@pytest.mark.parametrize("lay_out", [last, contiguous, strided])
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_torchs(name, lay_out, models):
    tensors, steps, groups, sides, extra = case(name, lay_out, models)
    tensors = [t.requires_grad_() for t in tensors]
    y, truth = ours(tensors, steps, groups, sides), plain(tensors, steps, groups, extra)
    torch.testing.assert_close(y, truth)
    grad = torch.randn_like(truth)
    torch.testing.assert_close(*(torch.autograd.grad(t, tensors, grad) for t in (y, truth)))
    assert y.movedim(2, -1).is_contiguous()


@pytest.mark.parametrize("name", ["plain", "channels"])
def test_a_result_can_be_written_into(name):
    """As by the ReLU in place behind it."""
    leaves, steps, groups, sides, _ = case(name, last)
    leaves = [t.requires_grad_() for t in leaves]
    plainly = (2 * ours(leaves, steps, groups, sides)).square().sum()
    in_place = ours(leaves, steps, groups, sides).mul_(2).square().sum()
    torch.testing.assert_close(*(torch.autograd.grad(loss, leaves) for loss in (in_place, plainly)))


@pytest.mark.parametrize("name", ["uneven", "groups", "channels"])
def test_gradients_of_gradients(name):
    tensors, steps, groups, sides, _ = case(name, last, 2)
    tensors = [t.requires_grad_() for t in tensors]

    def call(*own):
        return ours(own, steps, groups, sides)

    assert torch.autograd.gradcheck(call, tensors)
    assert torch.autograd.gradgradcheck(call, tensors, fast_mode=True)


@pytest.mark.parametrize("name", ["plain", "groups", "channels"])
def test_a_model_alone_has_the_bits_that_it_has_among_others(name):
    tensors, steps, groups, sides, _ = case(name, last)
    tensors = [t.float() for t in tensors]

    def results(own):
        own = [t.detach().requires_grad_() for t in own]
        y = ours(own, steps, groups, sides)
        factors = torch.cos(torch.arange(y[0].numel())).view(y.shape[1:]).expand_as(y)
        return y, *torch.autograd.grad(y, own, factors)

    together = results(tensors)
    for i in range(B):
        alone = results([t[i : i + 1] for t in tensors])
        assert all(torch.equal(a[i], b[0]) for a, b in zip(together, alone, strict=True))


@pytest.mark.parametrize("name", ["plain", "channels"])
def test_a_batch_that_all_models_share(name):
    (x, weight, bias), steps, groups, sides, extra = case(name, last)
    tensors = x[:1].expand_as(x), weight.requires_grad_(), None
    y = ours(tensors, steps, groups, sides)
    truth = plain((x[:1].repeat(B, 1, 1, 1, 1), weight, torch.zeros_like(bias)), steps, groups, extra)
    torch.testing.assert_close(y, truth)
    grad = torch.randn_like(truth)
    torch.testing.assert_close(*(torch.autograd.grad(t, weight, grad) for t in (y, truth)))


@pytest.mark.parametrize("name", ["plain", "channels"])
def test_a_gradient_that_is_not_wanted_is_not_computed(name):
    tensors, steps, groups, sides, _ = case(name, last)
    for wanted in tensors:
        own = [t.detach().requires_grad_(t is wanted) for t in tensors]
        ours(own, steps, groups, sides).sum().backward()
        assert [t.grad is not None for t in own] == [t is wanted for t in tensors]


@pytest.mark.parametrize("name", ["plain", "channels"])
def test_transforms_of_torch(name):
    tensors, steps, groups, sides, extra = case(name, last, 1)
    x, *rest = tensors
    found = torch.func.grad(lambda t: ours((t, *rest), steps, groups, sides).square().sum())(x)
    wanted = torch.func.grad(lambda t: plain((t, *rest), steps, groups, extra).square().sum())(x)
    torch.testing.assert_close(found, wanted)
