# SPDX-License-Identifier: MIT
"""Layers that take torch's constructor begin as torch's layers, made one by one, and refuse what torch refuses."""

import pytest
import torch

from dnnsuite import nn
from dnnsuite.errors import InvalidArgument

LAYERS = {
    "Linear": (5, 3),
    "Bilinear": (4, 3, 2),
    "LayerNorm": ((2, 3),),
    "GroupNorm": (2, 4),
    "BatchNorm2d": (3,),
    "Conv2d": (4, 6, 3),
    "ConvTranspose3d": (4, 6, 2),
    "GRUCell": (4, 3),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_begin_as_torchs_made_one_by_one(name):
    torch.manual_seed(3)
    array = getattr(nn, name)(*LAYERS[name], B=3, dtype=torch.float64)
    after = torch.get_rng_state()
    torch.manual_seed(3)
    models = [getattr(torch.nn, name)(*LAYERS[name], dtype=torch.float64) for _ in range(3)]
    assert torch.equal(after, torch.get_rng_state())
    for key, value in array.state_dict().items():
        assert torch.equal(value, torch.stack([model.state_dict()[key] for model in models]))


def test_arguments_by_place_and_by_name():
    layer = nn.Linear(4, 2, False, "cpu", torch.float64, B=2)
    assert (layer.in_features, layer.out_features, layer.bias, layer.weight.dtype) == (4, 2, None, torch.float64)
    assert nn.Linear(out_features=2, in_features=4, device="meta", B=2).weight.is_meta
    with pytest.raises(TypeError):
        nn.Linear(4, 2, depth=3, B=2)


def test_refuses_what_torch_refuses():
    with pytest.raises(InvalidArgument, match=r"GroupNorm\(num_groups=3, num_channels=4\): .*divisible"):
        nn.GroupNorm(3, 4, B=2)


@pytest.mark.parametrize("name", LAYERS)
def test_layers_begin_anew_in_the_order_of_their_models(name):
    """Also where a layer keeps its weight in another order of memory than torch's layer draws it in."""
    array = getattr(nn, name)(*LAYERS[name], B=2)
    models = [getattr(torch.nn, name)(*LAYERS[name]) for _ in range(2)]
    for key, value in array._parameters.items():
        if value is not None and value.dim() > 3:
            array._parameters[key] = torch.nn.Parameter(value.transpose(1, -1).contiguous().transpose(1, -1))
    for layers in ([array], models):
        torch.manual_seed(5)
        for layer in layers:
            layer.reset_parameters()
    for key, value in array.state_dict().items():
        assert torch.equal(value, torch.stack([model.state_dict()[key] for model in models]))
