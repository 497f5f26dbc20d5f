# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite import stack
from dnnsuite.nn import functional
from dnnsuite.nn.functional._convolution_rules import volume_convolution

B, N = 3, 2


def last(*shape, dtype=torch.float64):
    """Volumes or filters with the channels last in memory."""
    return torch.randn(*shape, dtype=dtype).movedim(2, -1).contiguous().movedim(-1, 2)


@pytest.mark.parametrize("order", [last, lambda *shape: torch.randn(*shape, dtype=torch.float64)])
@pytest.mark.parametrize(
    ("channels", "sides", "kernel", "rest"),
    [
        ((3, 16), (5, 7, 6), (3, 3, 3), {"padding": 1}),
        ((3, 8), (4, 9, 8), (3, 7, 5), {"stride": (1, 2, 2), "padding": (1, 3, 2)}),
        ((8, 6), (5, 4, 6), (1, 3, 3), {"padding": (0, 1, 1)}),
        ((6, 5), (5, 4, 3), (3, 1, 1), {"padding": (1, 0, 0), "stride": (2, 1, 1)}),
        ((7, 4), (3, 4, 5), (1, 1, 1), {}),
        ((7, 4), (3, 4, 5), (1, 1, 1), {"stride": 2}),
        ((7, 4), (3, 4, 5), (1, 1, 1), {"padding": 1}),
        ((4, 6), (6, 6, 5), (2, 3, 2), {"dilation": (2, 1, 2), "padding": "valid"}),
        ((4, 6), (6, 6, 5), (3, 3, 3), {"padding": "same", "groups": 2}),
        ((4, 4), (4, 4, 4), (3, 3, 3), {"padding": 1, "groups": 4}),
        ((20, 20), (12, 12, 12), (3, 3, 3), {"padding": 1, "groups": 10}),  # torch's
        ((1, 4), (20, 20, 20), (3, 3, 3), {"padding": 1}),  # torch's
        ((1, 16), (16, 16, 16), (3, 3, 3), {"padding": 1}),  # torch's, contiguous
        ((3, 32), (16, 16, 16), (3, 3, 3), {"padding": 1}),
    ],
)
def test_a_convolution_is_each_models(order, channels, sides, kernel, rest):
    inputs, outputs = channels
    x, weight = order(B, N, inputs, *sides), order(B, outputs, inputs // rest.get("groups", 1), *kernel)
    own = [t.requires_grad_() for t in (x, weight, torch.randn(B, outputs, dtype=torch.float64))]
    truth = torch.stack([torch.nn.functional.conv3d(*one, **rest) for one in zip(*own, strict=True)])
    y = functional.conv3d(*own, **rest)
    factors = torch.randn_like(truth)
    found, expected = ((z, *torch.autograd.grad(z, own, factors)) for z in (y, truth))
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("samples", [1, 2])
@pytest.mark.parametrize(("inputs", "side"), [(1, 20), (2, 12), (16, 6)])
def test_a_shared_batch(samples, inputs, side):
    one, weight = torch.randn(samples, inputs, *[side] * 3), last(B, 4, inputs, 3, 3, 3, dtype=torch.float32)
    factors = torch.randn(B, samples, 4, *[side] * 3)

    def results(x):
        w = weight.detach().requires_grad_()
        y = functional.conv3d(x, w, padding=1)
        return y.detach(), *torch.autograd.grad(y, w, factors)

    shared, copied = results(stack(one, B)), results(one.repeat(B, 1, 1, 1, 1, 1))
    assert all(torch.equal(a, b) for a, b in zip(shared, copied, strict=True))


@pytest.mark.parametrize(
    ("x", "weight", "stride", "ours"),
    [
        ((1, 32, 8, 8, 8), (64, 32, 3, 3, 3), 1, True),  # torch does not ask oneDNN for a single sample
        ((2, 32, 8, 8, 8), (64, 32, 3, 3, 3), 1, False),
        ((2, 32, 8, 8, 8), (64, 32, 3, 3, 3), 2, True),
        ((2, 64, 8, 14, 14), (64, 64, 3, 1, 1), 1, True),  # nor for filters of one tap in a plane
        ((2, 64, 8, 14, 14), (64, 8, 3, 3, 3), 1, False),
        ((2, 4, 24, 24, 24), (4, 4, 3, 3, 3), 1, False),  # few channels, many windows
    ],
)
def test_the_way_depends_on_shapes(x, weight, stride, ours):
    groups = x[1] // weight[1]
    y = volume_convolution(torch.zeros(2, *x), torch.zeros(2, *weight), None, stride, 1, 1, groups)
    assert (y is not None) == ours


@pytest.mark.parametrize(
    ("filters", "stride", "watched", "unwatched"),
    [
        ((32, 3), 1, True, False),
        ((16, 3), 1, False, False),
        ((16, 3), 2, True, False),
        ((32, 8), 1, False, False),
        ((32, 8), 2, True, False),
    ],
)
def test_gradients_of_few_channels_are_products_of_windows(filters, stride, watched, unwatched):
    x, weight = torch.zeros(2, 8, filters[1], 24, 24, 24), torch.zeros(2, *filters, 3, 3, 3)
    for needed, ours in ((True, watched), (False, unwatched)):
        y = volume_convolution(x.requires_grad_(needed), weight, None, stride, 1, 1, 1)
        assert (y is not None) == ours


def test_errors_are_torchs():
    with pytest.raises(RuntimeError, match="can't be greater than"):
        functional.conv3d(torch.zeros(2, 1, 3, 2, 2, 2), torch.zeros(2, 4, 3, 3, 3, 3))
    with pytest.raises(RuntimeError, match="to have 5 channels"):
        functional.conv3d(torch.zeros(2, 1, 3, 4, 4, 4), torch.zeros(2, 4, 5, 3, 3, 3))


def test_no_models():
    assert functional.conv3d(torch.zeros(0, 2, 3, 4, 4, 4), torch.zeros(0, 5, 3, 1, 1, 1)).shape == (
        *(0, 2, 5),
        *(4, 4, 4),
    )
