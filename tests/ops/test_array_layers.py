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


class Looked(torch.nn.Module):
    """A layer that counts how often somebody looks for its parameters."""

    looks = 0

    def __getattribute__(self, name):
        if name == "__dict__":
            Looked.looks += 1
        return super().__getattribute__(name)


def test_a_layer_that_is_made_looks_at_no_other():
    """Its initial values are those of one model after the other, so no tensor is a parameter of an array there."""
    other = Looked()
    array_layers.add(other)
    Looked.looks = 0
    nn.Conv2d(3, 4, 3, B=2)
    nn.Linear(3, 4, B=2).reset_parameters()
    assert Looked.looks == 0
    torch.nn.init.xavier_uniform_(nn.Conv2d(3, 4, 3, B=2).weight)
    assert Looked.looks > 0
