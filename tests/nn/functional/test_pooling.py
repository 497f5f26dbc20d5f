# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite.nn import functional


@pytest.mark.parametrize("kind", ["max", "avg", "adaptive_max", "adaptive_avg"])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_pools_each_sample(kind, dims):
    x = torch.randn(2, 3, 4, *[6] * dims)
    name = f"{kind}_pool{dims}d"
    y, plain = getattr(functional, name)(x, 2), getattr(torch.nn.functional, name)
    assert torch.equal(y[1], plain(x[1], 2))


def test_indices_are_those_of_a_plane():
    x = torch.randn(2, 3, 4, 6, 6)
    values, indices = functional.max_pool2d(x, 2, return_indices=True)
    assert torch.equal(x.flatten(-2).gather(-1, indices.flatten(-2)), values.flatten(-2))
    again = functional.max_pool2d_with_indices(x, 2)
    assert torch.equal(again[1], indices)
    back = functional.max_unpool2d(values, indices, 2)
    assert torch.equal(functional.max_pool2d(back.clamp(min=0), 2), values.clamp(min=0))


def test_channels_stay_last_in_memory():
    x = torch.randn(3, 2, 6, 6, 4).movedim(-1, 2)
    assert functional.max_pool2d(x, 2).movedim(2, -1).is_contiguous()
