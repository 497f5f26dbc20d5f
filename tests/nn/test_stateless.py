# SPDX-License-Identifier: MIT
import pytest

from dnnsuite import nn


def test_torch_reads_the_arguments():
    layer = nn.Fold((4, 5), kernel_size=2, padding=1, B=3)
    assert layer.arguments_of(layer) == {
        "output_size": (4, 5),
        "kernel_size": 2,
        "dilation": 1,
        "padding": 1,
        "stride": 1,
    }
    assert not list(layer.parameters())
    with pytest.raises(TypeError):
        nn.MaxPool2d(2, colour="red", B=3)
