# SPDX-License-Identifier: MIT
"""Shuffles of channels and pixels in a user's own code, after a layer that keeps channels last."""

import pytest
import torch
from torch.nn import functional as F

from dnnsuite.nn.functional.vision import contiguous_pixels, joined_pixels
from helpers import check_matches_models, make_models


def _parts(x):
    return x.view(x.size(0), 3, 4, *x.shape[2:])


SHUFFLES = {
    "contiguous": lambda x: _parts(x).transpose(1, 2).contiguous().view_as(x),
    "reshape": lambda x: _parts(x).transpose(1, 2).reshape(x.shape),
    "written into": lambda x: _parts(x).transpose(1, 2).contiguous().mul_(2).view_as(x) + x,
    "asked": lambda x: x if _parts(x).transpose(1, 2).contiguous().is_contiguous() else -x,
    "line": lambda x: _parts(x.flatten(2)).transpose(1, 2).reshape(x.size(0), 12, -1).unflatten(2, x.shape[2:]),
    "pixels": lambda x: F.pixel_unshuffle(
        x.view(x.size(0), 3, 2, 2, *x.shape[2:])
        .permute(0, 1, 4, 2, 5, 3)
        .reshape(x.size(0), 3, 2 * x.size(2), 2 * x.size(3)),
        2,
    ),
}


class Rearranged(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 12, 3)
        self.function = function

    def forward(self, x):
        return self.function(self.conv(x))


@pytest.mark.parametrize("name", SHUFFLES)
@pytest.mark.parametrize("B", [1, 3])
def test_channels_and_pixels_that_a_user_shuffles(name, B):
    models = make_models(lambda: Rearranged(SHUFFLES[name]), B)
    array = check_matches_models(models, torch.randn(B, 2, 3, 6, 5))
    y = array(torch.randn(B, 2, 3, 6, 5))
    assert y.movedim(2, -1).is_contiguous()


AS_THEY_ARE = {
    "heads": lambda x: x.unflatten(1, (3, 4)).permute(0, 3, 1, 4, 2).reshape(x.size(0), 4, 3, -1),
    "rows": lambda x: x.unflatten(1, (3, 4)).permute(0, 3, 1, 4, 2).reshape(x.size(0), 4, -1),
    "features last": lambda x: x.permute(0, 3, 1, 2).reshape(x.size(0), x.size(3), -1),
    "last contiguous": lambda x: x.permute(0, 2, 3, 1).contiguous(),
}


@pytest.mark.parametrize("name", AS_THEY_ARE)
def test_other_shapes_are_contiguous_as_in_torch(name):
    models = make_models(lambda: Rearranged(AS_THEY_ARE[name]), 2)
    array = check_matches_models(models, torch.randn(2, 2, 3, 6, 5))
    assert array(torch.randn(2, 2, 3, 6, 5)).is_contiguous()


@pytest.mark.parametrize(("samples", "sides"), [(1, (6, 5)), (2, (3, 5)), (1, (3, 4))])
def test_sizes_of_one(samples, sides):
    """A batch of one sample, rows of one pixel: their strides say nothing."""
    for name in ("contiguous", "reshape"):
        models = make_models(lambda name=name: Rearranged(SHUFFLES[name]), 2)
        array = check_matches_models(models, torch.randn(2, samples, 3, *sides))
        assert array(torch.randn(2, samples, 3, *sides)).movedim(2, -1).is_contiguous()


@pytest.mark.parametrize("samples", [1, 2])
def test_pixels_of_one_row(samples):
    models = make_models(lambda: Rearranged(SHUFFLES["pixels"]), 2)
    check_matches_models(models, torch.randn(2, samples, 3, 3, 4))


def test_views_that_need_no_copy_are_left_alone():
    x = torch.randn(2, 3, 5, 4, 12).movedim(-1, 2)
    assert contiguous_pixels(x.unflatten(2, (3, 4))) is None
    assert joined_pixels(x.unflatten(2, (3, 4)), (3, 12, 5, 4)) is None
    assert joined_pixels(x.unflatten(2, (3, 4)).transpose(2, 3), (3, 12, 4, 5)) is None  # sides would be cut
    assert joined_pixels(x.unflatten(2, (3, 4)).transpose(2, 3), (3, 12, 5, 4)) is not None


def test_parts_of_channels_with_gaps_between_them_are_copied_by_torch():
    x = torch.randn(2, 3, 5, 4, 12).movedim(-1, 2).unflatten(2, (3, 4)).transpose(2, 3)
    assert contiguous_pixels(x[:, :, :2]) is None
    assert joined_pixels(x[:, :, :2], (3, 6, 5, 4)) is None
