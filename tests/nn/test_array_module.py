# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite import fuse
from dnnsuite.errors import InvalidArgument
from dnnsuite.nn.array_module import per_model


def test_models_of_different_shape_are_refused_by_name():
    with pytest.raises(InvalidArgument, match=r"models 0 and 1 differ: Linear.out_features is 4 and 5"):
        fuse([torch.nn.Linear(6, 4), torch.nn.Linear(6, 5)])


def test_frozen_parameters_stay_frozen():
    models = [torch.nn.Linear(6, 4) for _ in range(2)]
    for model in models:
        model.bias.requires_grad_(False)
    assert not fuse(models).bias.requires_grad


def test_training_mode_is_the_models():
    assert not fuse([torch.nn.Linear(6, 4).eval()]).training


def test_one_value_or_one_per_model():
    assert per_model(0.5, 2, "p") == [0.5, 0.5]
    assert per_model(torch.tensor([0.5, 0.25]), 2, "p") == [0.5, 0.25]
    with pytest.raises(InvalidArgument, match="p has 1 values for 2 models"):
        per_model([0.5], 2, "p")


@pytest.mark.parametrize(
    "change",
    [
        torch.nn.utils.parametrizations.weight_norm,
        torch.nn.utils.parametrizations.spectral_norm,
        lambda layer: delattr(layer, "weight"),
    ],
)
def test_a_fused_layer_is_not_parametrized_later_and_stays_as_it_was(change):
    array = fuse([torch.nn.Sequential(torch.nn.Linear(6, 4)) for _ in range(2)])
    x = torch.randn(2, 3, 6)
    before = array(x)
    with pytest.raises(InvalidArgument, match=r"put weight_norm, .* on the models, or take it off"):
        change(array.get_submodule("0"))
    assert torch.equal(array(x), before)


def test_a_fused_parametrization_is_not_removed():
    models = [torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(6, 4)) for _ in range(2)]
    array = fuse([torch.nn.Sequential(model) for model in models])
    x = torch.randn(2, 3, 6)
    before = array(x)
    with pytest.raises(
        InvalidArgument, match="made by a parametrization, which cannot be removed after fuse"
    ):
        torch.nn.utils.parametrize.remove_parametrizations(array.get_submodule("0"), "weight")
    torch.testing.assert_close(array(x), before)
