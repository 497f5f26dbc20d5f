# SPDX-License-Identifier: MIT
import copy
import pickle

import pytest
import torch

from dnnsuite import fuse, nn, optim
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
    with pytest.raises(InvalidArgument, match="made by a parametrization, which cannot be removed after fuse"):
        torch.nn.utils.parametrize.remove_parametrizations(array.get_submodule("0"), "weight")
    torch.testing.assert_close(array(x), before)


LAYERS = [
    torch.nn.Linear(4, 4),
    torch.nn.Conv2d(4, 4, 3),
    torch.nn.BatchNorm2d(4),
    torch.nn.LayerNorm(4),
    torch.nn.Embedding(4, 4),
    torch.nn.Dropout(0.5),
    torch.nn.GRU(4, 4),
    torch.nn.MultiheadAttention(4, 2),
]


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: type(layer).__name__)
def test_a_layer_is_an_instance_of_torchs_class_and_its_own(layer):
    array = fuse([torch.nn.Sequential(layer)]).get_submodule("0")
    kind = type(layer)
    own = getattr(nn, kind.__name__)
    for each in (array, copy.deepcopy(array), pickle.loads(pickle.dumps(array))):
        assert type(each) is own
        assert isinstance(each, own)
        assert isinstance(each, kind)
        assert not isinstance(each, torch.nn.Bilinear)


def test_scripts_that_look_for_layers_find_those_of_an_array():
    def make():
        return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4), torch.nn.Dropout(0.5))

    def prepare(model, steps):
        """Dropout on in eval mode, as for Monte Carlo dropout, and no decay of a norm's weights."""
        model.eval()
        norms = [p for m in model.modules() if isinstance(m, torch.nn.LayerNorm) for p in m.parameters()]
        others = [p for m in model.modules() if isinstance(m, torch.nn.Linear) for p in m.parameters()]
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.train()
        groups = [{"params": norms, "weight_decay": 0.0}, {"params": others, "weight_decay": 0.5}]
        return steps(groups, lr=0.1)

    models = [make().double() for _ in range(2)]
    array = fuse(models)
    step = prepare(array, optim.SGD)
    x = torch.ones(2, 64, 4, dtype=torch.float64)
    assert (array(x) == 0).double().mean() > 0.2
    array.eval()
    array(x).sum().backward()
    step.step()
    for index, model in enumerate(models):
        own = prepare(model, torch.optim.SGD)
        model.eval()(x[index]).sum().backward()
        own.step()
        for mine, theirs in zip(array.parameters(), model.parameters(), strict=True):
            torch.testing.assert_close(mine[index], theirs)


@pytest.mark.parametrize("name", ["running_mean", "num_batches_tracked", "weight", "bias"])
def test_a_model_has_no_tensor_that_was_taken_from_the_layer(name):
    layer = nn.BatchNorm1d(4, B=2)
    setattr(layer, name, None)
    assert getattr(layer.to_model(1), name) is None


def test_a_model_keeps_the_statistics_that_its_layer_no_longer_moves():
    layer = nn.BatchNorm1d(4, B=2)
    layer(torch.randn(2, 8, 4))
    layer.track_running_stats = False
    model = layer.to_model(1)
    assert torch.equal(model.running_mean, layer.running_mean[1])
    assert not model.track_running_stats


def test_a_part_of_a_model_has_no_tensor_that_was_taken_from_the_layer():
    layer = nn.MultiheadAttention(4, 2, B=2)
    layer.in_proj_bias = None
    model = layer.to_model(1)
    assert model.in_proj_bias is None
    assert torch.equal(model.out_proj.bias, layer.out_proj.bias[1])
