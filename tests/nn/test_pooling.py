# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite import nn
from dnnsuite.errors import InvalidArgument


def test_the_defaults_are_those_of_torch():
    layer = nn.MaxPool2d(3, B=2)
    assert (layer.stride, layer.padding, layer.dilation) == (3, 0, 1)
    assert "kernel_size=3" in repr(layer)


def test_unpooling_to_a_size():
    x = torch.randn(2, 3, 4, 5, 7)
    pooled, indices = nn.MaxPool2d(2, return_indices=True, B=2)(x)
    back = nn.MaxUnpool2d(2, B=2)(pooled, indices, output_size=(5, 7))
    assert back.shape == x.shape
    assert torch.equal(back[back != 0], x[back != 0])


def test_refuses_other_shapes():
    with pytest.raises(InvalidArgument, match=r"max_pool2d takes \[B, N, C, H, W\]"):
        nn.MaxPool2d(2, B=2)(torch.randn(2, 4, 4))
    with pytest.raises(InvalidArgument, match="B=2"):
        nn.AvgPool1d(2, B=2)(torch.randn(3, 4, 4))
