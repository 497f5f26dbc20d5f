# SPDX-License-Identifier: MIT
import torch

from dnnsuite import nn


def test_padding_stays_inside_a_model():
    x = torch.arange(12.0).view(2, 1, 1, 6)
    y = nn.CircularPad1d((1, 2), B=2)(x)
    assert y[0, 0, 0].tolist() == [5, 0, 1, 2, 3, 4, 5, 0, 1]
    assert y[1, 0, 0].tolist() == [11, 6, 7, 8, 9, 10, 11, 6, 7]


def test_zeros_and_constants():
    x = torch.ones(2, 3, 1, 2)
    assert nn.ZeroPad1d(1, B=2)(x)[1, 2, 0].tolist() == [0, 1, 1, 0]
    assert nn.ConstantPad1d((0, 1), 7.0, B=2)(x)[1, 2, 0].tolist() == [1, 1, 7]
