# SPDX-License-Identifier: MIT
"""Which lines, images and volumes are resampled by this package's operator, and that it computes what torch does."""

import pytest
import torch
from torch.nn import functional as F

from dnnsuite.nn import functional
from dnnsuite.nn.functional.vision import averaged, interpolated, repeated, takes_channels_last

B, N = 3, 2


def last(channels, *sides, dtype=torch.float64):
    return torch.randn(B, N, *sides, channels, dtype=dtype).movedim(-1, 2)


def agrees(ours, plain, x):
    """Values and gradients are those of torch for each model, and the channels stay last."""
    x.requires_grad_()
    y = ours(x)
    own = [one.detach().contiguous().requires_grad_() for one in x.unbind(0)]
    truth = torch.stack([plain(one) for one in own])
    grad = torch.randn_like(truth)
    truth.backward(grad)
    y.backward(grad)
    torch.testing.assert_close(y, truth)
    torch.testing.assert_close(x.grad, torch.stack([one.grad for one in own]))
    assert y.movedim(2, -1).is_contiguous()


HOW = [
    {"scale_factor": 2},
    {"size": 9},
    {"scale_factor": 1.7},
    {"scale_factor": 0.6},
    {"scale_factor": 1.7, "recompute_scale_factor": True},
]


@pytest.mark.parametrize("how", HOW, ids=str)
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic"])
@pytest.mark.parametrize("channels", [3, 17])
def test_images(mode, how, channels):
    for corners in (None,) if "nearest" in mode else (False, True):
        arguments = how | {"mode": mode, "align_corners": corners}
        agrees(
            lambda x, a=arguments: functional.interpolate(x, **a),
            lambda x, a=arguments: F.interpolate(x, **a),
            last(channels, 7, 5),
        )


@pytest.mark.parametrize("how", HOW, ids=str)
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_lines(mode, how):
    arguments = how | {"mode": mode}
    agrees(lambda x: functional.interpolate(x, **arguments), lambda x: F.interpolate(x, **arguments), last(3, 7))


@pytest.mark.parametrize("how", [*HOW, {"size": (3, 9, 5)}, {"scale_factor": (2, 1, 0.5)}], ids=str)
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "trilinear"])
@pytest.mark.parametrize("channels", [3, 17])
def test_volumes(mode, how, channels):
    for corners in (None,) if "nearest" in mode else (False, True):
        arguments = how | {"mode": mode, "align_corners": corners}
        agrees(
            lambda x, a=arguments: functional.interpolate(x, **a),
            lambda x, a=arguments: F.interpolate(x, **a),
            last(channels, 4, 7, 5),
        )


@pytest.mark.parametrize("mode", ["constant", "circular", "replicate", "reflect"])
def test_padding(mode):
    for padding, sides in (((1, 3, 0, 2), (4, 5)), ((4, 2), (6,))):
        agrees(lambda x, p=padding: functional.pad(x, p, mode), lambda x, p=padding: F.pad(x, p, mode), last(5, *sides))


def test_uneven_windows():
    agrees(
        lambda x: functional.adaptive_avg_pool2d(x, (3, None)),
        lambda x: F.adaptive_avg_pool2d(x, (3, None)),
        last(6, 7, 5),
    )
    agrees(lambda x: functional.adaptive_avg_pool1d(x, 4), lambda x: F.adaptive_avg_pool1d(x, 4), last(6, 7))


def test_a_step_of_a_model_in_float32_is_that_of_torch():
    """A nearest pixel lies elsewhere if steps are rounded another way."""
    x = last(2, 1, 50, dtype=torch.float32)
    for size in range(1, 120):
        expected = F.interpolate(x[0].contiguous(), (1, size))
        assert torch.equal(functional.interpolate(x, (1, size))[0], expected), size


def test_what_is_left_to_torch():
    images = last(3, 6, 6)
    assert takes_channels_last(images, 2)
    assert takes_channels_last(last(3, 4, 4, 4), 3)
    assert takes_channels_last(images[:1].expand(B, -1, -1, -1, -1), 2)
    for other in (last(1, 6, 6), images.contiguous(), images.bfloat16(), images[:, :0], images[0], images.to("meta")):
        assert not takes_channels_last(other, 2)
    rest = (None, None, "bilinear", None, None)
    assert interpolated(images, *rest, True) is None
    assert interpolated(images, *rest, False) is None  # neither a size nor a factor
    assert interpolated(images, 3, None, "nearest", True, None, False) is None
    assert repeated(images, (1, 1, 1, 1), "other") is None
    assert repeated(images, (-1, 1, 1, 1), "circular") is None
    assert repeated(last(3, 4, 4, 4), (1, 1, 1, 1, 1, 1), "zero") is None
    assert interpolated(last(3, 4, 4, 4), 3, None, "area", None, None, False) is None
    assert repeated(images, (7, 0, 0, 0), "circular") is None
    assert repeated(images, (6, 0, 0, 0), "reflect") is None
    assert averaged(images, (1, 2, 3), 2) is None


def test_errors_are_those_of_torch():
    images = last(3, 6, 6)
    with pytest.raises(ValueError, match="align_corners"):
        functional.interpolate(images, 3, mode="nearest", align_corners=True)
    with pytest.raises(RuntimeError, match="Padding"):
        functional.pad(images, (7, 0, 0, 0), "reflect")


def test_gradients_of_gradients():
    x = torch.randn(2, 1, 3, 4, 2, dtype=torch.float64).movedim(-1, 2).requires_grad_()
    assert torch.autograd.gradgradcheck(lambda t: functional.interpolate(t, scale_factor=2, mode="bicubic").sin(), x)


def test_gradients_of_gradients_of_volumes():
    x = torch.randn(2, 1, 3, 2, 4, 2, dtype=torch.float64).movedim(-1, 2).requires_grad_()
    assert torch.autograd.gradgradcheck(lambda t: functional.interpolate(t, scale_factor=2, mode="trilinear").sin(), x)
