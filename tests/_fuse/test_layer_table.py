# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite import nn
from dnnsuite._fuse.layer_table import ELEMENTWISE, RULES


def test_every_layer_of_an_array_is_found_by_its_class_of_torch():
    assert RULES[torch.nn.Linear] is nn.Linear
    layers = [v for v in vars(nn).values() if isinstance(v, type) and issubclass(v, nn.ArrayModule)]
    missing = [layer for layer in layers if layer is not nn.ArrayModule and layer not in RULES.values()]
    assert missing == []


@pytest.mark.parametrize("kind", ELEMENTWISE)
def test_elementwise_layers_are_the_same_on_stacked_tensors(kind):
    layer = kind(0.1, 20.0) if kind is torch.nn.Threshold else kind()
    x = torch.randn(3, 5, 4)
    torch.testing.assert_close(layer(x), torch.stack([layer(one) for one in x]))
    assert not list(layer.parameters())
