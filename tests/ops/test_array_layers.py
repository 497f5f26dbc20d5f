# SPDX-License-Identifier: MIT
"""Which tensors are parameters of an array."""

import gc

import torch

import dnnsuite
from dnnsuite import nn
from dnnsuite.ops import array_layers
from dnnsuite.ops.array_layers import is_parameter

B = 3


def test_parameters_of_an_array_as_long_as_it_lives():
    layer = nn.Linear(6, 4, B=B)
    assert is_parameter(layer.weight)
    assert is_parameter(layer.weight.data)
    assert not is_parameter(layer.weight[0])
    assert not is_parameter(torch.empty(B, 4, 6))
    assert any(parameter is layer.bias for parameter in array_layers.parameters())
    held = layer.weight
    del layer
    gc.collect()
    assert not is_parameter(held)


def test_a_model_of_an_array_is_none():
    class Own(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(4))

        def forward(self, x):
            return x * self.scale

    array = dnnsuite.fuse([Own() for _ in range(B)])
    assert is_parameter(array.scale)
    assert not is_parameter(array[1].scale)
