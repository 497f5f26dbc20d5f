# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite import fuse, nn
from dnnsuite._fuse.layer_table import ELEMENTWISE, RULES, says_all
from helpers import assert_near, first_tensor, make_models


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


#: Attributes that no constructor's argument of an array layer has: (layer, its part, name, another value).
CHANGES = [
    (lambda: torch.nn.TransformerEncoderLayer(4, 2, 8, 0.0), "norm2", "eps", 0.5),
    (
        lambda: torch.nn.TransformerEncoder(
            torch.nn.TransformerEncoderLayer(4, 2, 8, 0.0), 1, enable_nested_tensor=False
        ),
        "layers.0.norm2",
        "eps",
        0.5,
    ),
    (lambda: torch.nn.RNN(4, 4), "", "mode", "RNN_RELU"),
    (lambda: torch.nn.ZeroPad1d(1), "", "value", 2.0),
]


@pytest.mark.parametrize(("make", "part", "name", "value"), CHANGES)
@pytest.mark.parametrize("which", [slice(None), slice(1, 2)])
def test_an_attribute_that_was_set_in_a_layer_counts(make, part, name, value, which):
    models = make_models(make, 3)
    assert says_all(RULES[type(models[0])], models[0])
    for model in models[which]:
        setattr(model.get_submodule(part), name, value)
    x = torch.randn(3, 3, 2, 4)
    output = first_tensor(fuse(models)(x))
    for index, model in enumerate(models):
        assert_near(output[index], first_tensor(model(x[index])))
