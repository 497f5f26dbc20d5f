# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite import nn
from dnnsuite.errors import InvalidArgument


def test_dimensions_count_without_the_model():
    x = torch.randn(2, 3, 4, 5)
    assert nn.Flatten(B=2)(x).shape == (2, 3, 20)
    assert nn.Flatten(0, 1, B=2)(x).shape == (2, 12, 5)
    assert nn.Unflatten(1, (2, 2), B=2)(x).shape == (2, 3, 2, 2, 5)


def test_refuses_the_model_as_a_dimension():
    with pytest.raises(InvalidArgument, match="Flatten"):
        nn.Flatten(-4, B=2)(torch.randn(2, 3, 4, 5))
    with pytest.raises(InvalidArgument, match="Unflatten"):
        nn.Unflatten(3, (5, 1), B=2)(torch.randn(2, 3, 4, 5))


def test_each_model_has_its_own_pixels():
    x = torch.randn(2, 3, 4, 2, 2)
    y = nn.Upsample(scale_factor=2, B=2)(x)
    assert torch.equal(y[..., ::2, ::2], x)
