# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite.nn import functional

B, N = 3, 2


def last(*shape):
    """Images or filters with the channels last in memory."""
    return torch.randn(*shape, dtype=torch.float64).movedim(2, -1).contiguous().movedim(-1, 2).requires_grad_()


def agree(y, truth, inputs):
    """Check values, gradients, and gradients of these."""
    torch.testing.assert_close(y, truth)
    grad = torch.randn_like(truth, requires_grad=True)
    ours, wanted = (torch.autograd.grad(z, inputs, grad, create_graph=True) for z in (y, truth))
    torch.testing.assert_close(ours, wanted)
    twice, wanted_twice = (torch.autograd.grad(sum(g.square().sum() for g in z), grad) for z in (ours, wanted))
    torch.testing.assert_close(twice, wanted_twice)


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize(
    ("channels", "sides", "kernel", "rest"),
    [
        ((3, 16), (10, 8), (4, 4), {"stride": 2, "padding": 1}),
        ((3, 8), (7, 9), (3, 5), {"stride": (1, 2), "padding": (0, 2)}),
        ((64, 40), (6, 6), (3, 3), {"stride": 2, "padding": 1}),
        ((2, 5), (5, 5), (2, 2), {"stride": 3}),
        ((40, 12), (9, 8), (1, 1), {"stride": (3, 2)}),
        ((4, 6), (5, 5), (3, 3), {"dilation": 2}),  # few pixels: torch's, contiguous
        ((1, 1), (9, 7), (3, 3), {"padding": 1}),
        ((1, 1), (40, 41), (5, 3), {"padding": 2, "stride": (1, 2)}),
        ((1, 20), (9, 8), (1, 1), {"stride": (2, 1)}),  # pixels times filters
        ((6, 6), (9, 9), (5, 5), {"padding": 2, "groups": 6}),
        ((3, 3), (64, 60), (7, 7), {"padding": 3, "groups": 3}),
        ((4, 6), (6, 6), (3, 3), {"padding": 2, "dilation": 2}),  # these are torch's
        ((4, 6), (6, 6), (3, 3), {"groups": 2}),
    ],
)
def test_a_convolution(channels, sides, kernel, rest, with_bias):
    inputs, outputs = channels
    x, weight = last(B, N, inputs, *sides), last(B, outputs, inputs // rest.get("groups", 1), *kernel)
    own = (x, weight, torch.randn(B, outputs, dtype=torch.float64, requires_grad=True))[: 2 + with_bias]
    truth = torch.stack([torch.nn.functional.conv2d(*one, **rest) for one in zip(*own, strict=True)])
    agree(functional.conv2d(*own, **rest), truth, own)


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize(
    ("channels", "sides", "kernel", "rest"),
    [
        ((16, 3), (5, 4), (4, 4), {"stride": 2, "padding": 1}),
        ((6, 2), (3, 4), (3, 5), {"stride": (2, 3), "padding": (1, 0), "output_padding": (1, 2)}),
        ((40, 24), (3, 3), (3, 3), {"stride": 1, "padding": 2}),
        ((5, 3), (2, 3), (1, 2), {"stride": 3, "output_padding": 2}),  # pixels that no window has
        ((4, 3), (4, 4), (3, 3), {"dilation": 2}),
        ((4, 6), (4, 4), (3, 3), {"groups": 2, "stride": 2}),
        ((4, 4), (4, 3), (3, 4), {"groups": 4, "stride": 2, "padding": 1}),
        ((2, 1), (9, 8), (3, 3), {"dilation": 3, "output_padding": 2}),  # of more than a step: torch's
        ((8, 40), (64, 66), (5, 5), {"groups": 2, "padding": 2}),  # few filters on many pixels: torch's
        ((8, 1), (1, 7), (1, 4), {"stride": (1, 4)}),  # windows side by side
        ((3, 5), (4, 3), (1, 2), {"stride": (1, 2)}),
    ],
)
def test_a_transposed_convolution(channels, sides, kernel, rest, with_bias):
    inputs, outputs = channels
    x, weight = last(B, N, inputs, *sides), last(B, inputs, outputs // rest.get("groups", 1), *kernel)
    own = (x, weight, torch.randn(B, outputs, dtype=torch.float64, requires_grad=True))[: 2 + with_bias]
    truth = torch.stack([torch.nn.functional.conv_transpose2d(*one, **rest) for one in zip(*own, strict=True)])
    agree(functional.conv_transpose2d(*own, **rest), truth, own)


@pytest.mark.parametrize("shared", [False, True])
def test_a_model_alone_has_the_bits_that_it_has_among_others(shared):
    x, z = torch.randn(B, 4, 3, 16, 16), torch.randn(B, 4, 16, 8, 8)
    if shared:  # one batch for all models
        x, z = (t[:1].expand_as(t) for t in (x, z))
    weight, transposed = torch.randn(B, 16, 3, 4, 4), torch.randn(B, 16, 3, 4, 4)
    together = functional.conv2d(x, weight, stride=2, padding=1)
    made = functional.conv_transpose2d(z, transposed, stride=2, padding=1)
    for i in range(B):
        one = slice(i, i + 1)
        assert torch.equal(functional.conv2d(x[one], weight[one], stride=2, padding=1)[0], together[i])
        assert torch.equal(functional.conv_transpose2d(z[one], transposed[one], stride=2, padding=1)[0], made[i])


def test_sixteen_bits_are_convolved_too():
    x, z = torch.randn(B, N, 3, 8, 8), torch.randn(B, N, 16, 4, 4)
    weight, transposed = torch.randn(B, 16, 3, 4, 4), torch.randn(B, 16, 3, 4, 4)
    with torch.autocast("cpu"):
        y = functional.conv2d(x, weight, stride=2, padding=1)
        back = functional.conv_transpose2d(z, transposed, stride=2, padding=1)
    assert y.dtype == back.dtype == torch.bfloat16
    torch.testing.assert_close(y.float(), functional.conv2d(x, weight, stride=2, padding=1), rtol=0.05, atol=0.2)


def test_impossible_convolutions_have_torchs_errors():
    with pytest.raises(RuntimeError):
        functional.conv2d(torch.randn(B, N, 3, 2, 2), torch.randn(B, 4, 3, 4, 4))
    with pytest.raises(RuntimeError):
        functional.conv_transpose2d(torch.randn(B, N, 3, 2, 2), torch.randn(B, 3, 4, 2, 2), padding=3)
    with pytest.raises(RuntimeError):
        functional.conv_transpose2d(torch.randn(B, N, 3, 2, 2), torch.randn(B, 3, 4, 2, 2), output_padding=1)


def test_no_images_make_no_images():
    x, weight = torch.randn(B, 0, 4, 5, 5), torch.randn(B, 4, 2, 3, 3)
    assert functional.conv_transpose2d(x, weight, stride=2).shape == (B, 0, 2, 11, 11)
