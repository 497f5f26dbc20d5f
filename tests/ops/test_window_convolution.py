# SPDX-License-Identifier: MIT
"""What is special about products of windows; values and gradients in general are in test_operators.py."""

import pytest
import torch

from dnnsuite import ops

B, N = 3, 4


def last(*shape, dtype=torch.float32):
    """Images or filters with the channels last in memory."""
    return torch.randn(*shape[:2], *shape[3:], shape[2], dtype=dtype).movedim(-1, 2)


def gradients(x, weight, bias, *rest):
    leaves = [t.detach().requires_grad_() for t in (x, weight, bias)]
    y = ops.window_convolution(*leaves, *rest)
    factors = torch.cos(torch.arange(y.numel(), dtype=y.dtype)).view(y.shape)
    return y.detach(), *torch.autograd.grad(y, leaves, factors)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("outputs", [6, 80])
@pytest.mark.parametrize(("samples", "height"), [(4, 19), (40, 3)])
def test_any_number_of_threads_gives_the_same_bits(groups, shared, outputs, samples, height):
    x, weight, bias = (last(B, samples, 8, height, 17), last(B, outputs, 8 // groups, 3, 3), torch.randn(B, outputs))
    if shared:
        x = x[:1].expand_as(x)
    rest = (1, 2), (1, 0), (1, 2), groups
    found = {}
    for threads in (1, 2, 4):
        torch.set_num_threads(threads)
        found[threads] = gradients(x, weight, bias, *rest)
    torch.set_num_threads(1)
    for threads in (2, 4):
        assert all(torch.equal(a, b) for a, b in zip(found[1], found[threads], strict=True))


@pytest.mark.parametrize("samples", [4, 40])
def test_a_batch_that_all_models_share_has_the_bits_of_copies(samples):
    one, weight, bias = last(1, samples, 5, 9, 8), last(B, 40, 5, 3, 3), torch.randn(B, 40)
    factors = torch.randn(B, samples, 40, 7, 6)

    def filters_gradient(x):
        w = weight.detach().requires_grad_()
        y = ops.window_convolution(x, w, bias)
        return y.detach(), torch.autograd.grad(y, w, factors)[0]

    shared, copied = (filters_gradient(x) for x in (one.expand(B, -1, -1, -1, -1), one.repeat(B, 1, 1, 1, 1)))
    assert all(torch.equal(a, b) for a, b in zip(shared, copied, strict=True))


@pytest.mark.parametrize("inputs", [1, 4, 20])
@pytest.mark.parametrize("outputs", [2, 6, 48])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(
    ("side", "kernel", "steps"),
    [
        (2, 5, ((1, 1), (2, 2), (1, 1))),  # no position sees all taps
        (4, 3, ((2, 2), (3, 3), (1, 1))),  # some see none
        (5, 2, ((3, 1), (0, 1), (2, 3))),  # pixels that nothing sees
        (6, 1, ((2, 2), (0, 0), (1, 1))),
    ],
)
def test_many_samples_of_small_maps(inputs, outputs, groups, side, kernel, steps):
    """Products at single positions: of more samples than are multiplied at a time, and a rest."""
    x = last(2, 53, inputs * groups, side, side, dtype=torch.float64)
    weight = last(2, outputs * groups, inputs, kernel, kernel, dtype=torch.float64)
    leaves = [t.requires_grad_() for t in (x, weight, torch.randn(2, outputs * groups, dtype=torch.float64))]
    truth = torch.stack([torch.nn.functional.conv2d(*own, *steps, groups) for own in zip(*leaves, strict=True)])
    factors = torch.randn_like(truth)
    y = ops.window_convolution(*leaves, *steps, groups)
    found, expected = ((z, *torch.autograd.grad(z, leaves, factors)) for z in (y, truth))
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("samples", [3, 53])  # by windows, and at single positions
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(
    ("sides", "kernel", "steps"),
    [
        ((2, 3, 4), (3, 3, 3), ((1, 1, 1), (1, 1, 1), (1, 1, 1))),
        ((5, 2, 3), (3, 1, 2), ((2, 1, 1), (1, 0, 2), (1, 1, 2))),
        ((4, 3, 3), (2, 3, 3), ((3, 1, 2), (0, 1, 1), (2, 1, 1))),  # planes that nothing sees
        ((1, 4, 3), (3, 3, 1), ((1, 1, 1), (1, 1, 0), (1, 1, 1))),  # taps on padding only
    ],
)
def test_volumes(samples, groups, sides, kernel, steps):
    x = last(2, samples, 4 * groups, *sides, dtype=torch.float64)
    weight = last(2, 3 * groups, 4, *kernel, dtype=torch.float64)
    leaves = [t.requires_grad_() for t in (x, weight, torch.randn(2, 3 * groups, dtype=torch.float64))]
    own = zip(*leaves, strict=True)
    truth = torch.stack([torch.nn.functional.conv3d(*one, *steps, groups) for one in own])
    factors = torch.randn_like(truth)
    y = ops.window_convolution(*leaves, *steps, groups)
    assert y.movedim(2, -1).is_contiguous()
    found, expected = ((z, *torch.autograd.grad(z, leaves, factors)) for z in (y, truth))
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("samples", [3, 40])
def test_volumes_have_the_same_bits_with_any_number_of_threads(samples):
    x, weight, bias = last(B, samples, 6, 3, 5, 4), last(B, 34, 6, 2, 3, 3), torch.randn(B, 34)
    found = []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        found.append(gradients(x, weight, bias, (1, 1, 2), (1, 1, 0), (1, 1, 1)))
    torch.set_num_threads(1)
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


@pytest.mark.parametrize("samples", [4, 40])
def test_a_gradient_has_the_same_bits_whichever_others_are_asked_for(samples):
    x, weight, bias = last(2, samples, 24, 4, 4), last(2, 40, 24, 3, 3), torch.randn(2, 40)
    together = gradients(x, weight, bias, (1, 1), (1, 1))[1:]
    for asked, expected in enumerate(together):
        leaves = [t.detach().requires_grad_(i == asked) for i, t in enumerate((x, weight, bias))]
        y = ops.window_convolution(*leaves, (1, 1), (1, 1))
        factors = torch.cos(torch.arange(y.numel(), dtype=y.dtype)).view(y.shape)
        assert torch.equal(torch.autograd.grad(y, leaves[asked], factors)[0], expected)


def test_a_shared_batch_may_have_a_gradient():
    x, weight = (last(1, N, 5, 6, 6, dtype=torch.float64).requires_grad_(), last(B, 4, 5, 3, 3, dtype=torch.float64))
    y = ops.window_convolution(x.expand(B, -1, -1, -1, -1), weight)
    factors = torch.randn_like(y)
    truth = torch.stack([torch.nn.functional.conv2d(x[0], w.contiguous()) for w in weight])
    torch.testing.assert_close(
        torch.autograd.grad(y, x, factors), torch.autograd.grad(truth, x, factors), rtol=1e-10, atol=1e-10
    )


def test_memory_order_does_not_matter_and_channels_come_last():
    x, weight, bias = last(B, N, 3, 7, 6), last(B, 5, 3, 2, 3), torch.randn(B, 5)
    expected = gradients(x, weight, bias, (2, 1), (1, 1))
    for images, filters in ((x.contiguous(), weight), (x, weight.contiguous())):
        found = gradients(images, filters, bias, (2, 1), (1, 1))
        assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))
    assert all(t.movedim(2, -1).is_contiguous() for t in expected[:3])


def test_pixels_that_no_window_sees_have_a_gradient_of_zero():
    x, weight = last(1, 2, 3, 8, 8).requires_grad_(), last(1, 4, 3, 1, 1)
    (dx,) = torch.autograd.grad(ops.window_convolution(x, weight, None, (3, 3)).sum(), x)
    seen = torch.zeros(8, 8, dtype=torch.bool)
    seen[::3, ::3] = True
    assert torch.equal(dx != 0, seen.expand_as(dx))


@pytest.mark.parametrize("groups", [1, 2])
def test_strides_are_known_without_values(groups):
    inputs = last(2, 3, 4, 5, 5), last(2, 6, 4 // groups, 3, 3), torch.randn(2, 6)
    steps = [2, 1], [1, 0], [1, 2], groups
    real = ops.window_convolution(*inputs, *steps)
    meta = torch.ops.dnnsuite.window_convolution(*(t.to("meta") for t in inputs), *steps)
    assert (meta.shape, meta.stride()) == (real.shape, real.stride())


def test_strides_of_volumes_are_known_without_values():
    inputs = last(2, 3, 4, 5, 5, 4), last(2, 6, 4, 3, 2, 3), torch.randn(2, 6)
    steps = [2, 1, 1], [1, 0, 1], [1, 2, 1], 1
    real = ops.window_convolution(*inputs, *steps)
    meta = torch.ops.dnnsuite.window_convolution(*(t.to("meta") for t in inputs), *steps)
    assert (meta.shape, meta.stride()) == (real.shape, real.stride())


@pytest.mark.parametrize(
    ("x", "weight", "rest", "words"),
    [
        ((2, 3, 4, 5), (2, 6, 4, 3, 3), {}, "x must be"),
        ((2, 3, 4, 5, 5), (3, 6, 4, 3, 3), {}, "do not fit images"),
        ((2, 3, 4, 5, 5), (2, 5, 2, 3, 3), {"groups": 2}, "in 2 groups do not fit"),
        ((2, 3, 4, 2, 2), (2, 6, 4, 3, 3), {}, "filters of 3 do not fit into 2 pixels"),
        ((2, 3, 4, 5, 5), (2, 6, 4, 3, 3), {"stride": (0, 1)}, "must be positive"),
        ((2, 3, 4, 5, 5), (2, 6, 4, 3, 3), {"stride": (1,)}, "two numbers each"),
        ((2, 3, 4, 5, 5, 5), (2, 6, 4, 3, 3, 3), {"stride": (1, 1)}, "three numbers each"),
        ((2, 3, 4, 5, 5, 5), (2, 6, 4, 3, 3), {}, "x must be"),
    ],
)
def test_what_does_not_fit_is_refused(x, weight, rest, words):
    with pytest.raises(RuntimeError, match=words):
        ops.window_convolution(torch.randn(x), torch.randn(weight), **rest)
